// The strict pass: what it refuses and in which words.
#include "configuration_schema.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace perceptd;
using nlohmann::json;

namespace {

std::vector<std::string> problems_of(const std::string& text) {
    return check_configuration(parse_configuration(text, "f.json"));
}

/// The only problem of `text`.
std::string problem_of(const std::string& text) {
    const auto problems = problems_of(text);
    INFO(text);
    REQUIRE(problems.size() == 1);
    return problems.front();
}

}  // namespace

TEST_CASE("every key has a unit and a default that passes", "[configuration_schema]") {
    json all = json::object();
    for (const ConfigurationKey& key : configuration_keys()) {
        INFO(key.pointer);
        CHECK_FALSE(key.unit.empty());
        all[json::json_pointer(key.pointer)] = key.default_value;
    }
    CHECK(problems_of(all.dump()).empty());
    CHECK(find_configuration_key("/windows/deadline_ms")->is_live);
    CHECK_FALSE(find_configuration_key("/sensors/camera/rate_hz")->is_live);
    CHECK(find_configuration_key("/sensors/camera") == nullptr);
}

TEST_CASE("limits are inclusive, beyond them is an error", "[configuration_schema]") {
    const json schema = json::parse(configuration_schema_text());
    for (const ConfigurationKey& key : configuration_keys()) {
        std::string path;
        for (const char c : key.pointer) {
            path += c == '/' ? std::string("/properties/") : std::string(1, c);
        }
        const json& entry = schema.at(json::json_pointer(path));
        if (!entry.contains("minimum")) {
            continue;
        }
        const auto count_for = [&](const json& value) {
            json document = json::object();
            document[json::json_pointer(key.pointer)] = value;
            return problems_of(document.dump()).size();
        };
        INFO(key.pointer);
        const double step = entry["type"] == "integer" ? 1 : 1e-12;
        CHECK(count_for(entry["minimum"]) == 0);
        CHECK(count_for(entry["maximum"]) == 0);
        CHECK(count_for(entry["minimum"].get<double>() - step) == 1);
        CHECK(count_for(entry["maximum"].get<double>() + step) == 1);
        CHECK(count_for(-1) == 1);
        CHECK(count_for(18446744073709551615U) == 1);
        CHECK(count_for("5") == 1);
        CHECK(count_for(true) == 1);
        CHECK(count_for(json::array()) == 1);
        CHECK(count_for(json::object()) == 1);
        CHECK(count_for(nullptr) == 0);
    }
}

TEST_CASE("an error says where, what, unit and range", "[configuration_schema]") {
    CHECK(problem_of("{\n\"sensors\": {\n\"camera\": {\n\"rate_hz\": 300\n} } }") ==
          "f.json:4: /sensors/camera/rate_hz: 300 is out of range; expected an integer, 1 .. 240 Hz");
    CHECK(problem_of(R"({"sensors": {"camera": {"rate_hz": "fast"}}})") ==
          "f.json:1: /sensors/camera/rate_hz: \"fast\" has the wrong type; expected an integer, 1 .. 240 Hz");
    CHECK(problem_of(R"({"log": {"level": "loud"}})") ==
          "f.json:1: /log/level: \"loud\" is unknown; expected one of debug | info | warning | error");
    CHECK(problem_of(R"({"sensors": 3})") == "f.json:1: /sensors: 3 has the wrong type; expected an object");
    CHECK_THAT(problem_of(R"({"windows": {"deadline_ms": 1.5}})"),
               Catch::Contains("expected an integer, 1 .. 1000 ms"));
}

TEST_CASE("an integer may be written as 30.0, as draft-07 says", "[configuration_schema]") {
    CHECK(problems_of(R"({"sensors": {"camera": {"rate_hz": 30.0}}})").empty());
}

TEST_CASE("an unknown key gets the nearest known one", "[configuration_schema]") {
    const std::vector<std::pair<std::string, std::string>> cases{
        {R"({"sensors": {"camera": {"rate": 30}}})", "/sensors/camera/rate_hz (an integer, 1 .. 240 Hz)"},
        {R"({"sensors": {"camrea": {}}})", "/sensors/camera (an object)"},
        {R"({"window": {}})", "/windows (an object)"},
        {R"({"windows": {"deadline_sm": 5}})", "/windows/deadline_ms (an integer, 1 .. 1000 ms)"},
        {R"({"arena": {"camera_slots_count": 5}})", "/arena/camera_slot_count"},
        {R"({"deadline_ms": 5})", "/windows/deadline_ms"},
    };
    for (const auto& [text, nearest] : cases) {
        CHECK_THAT(problem_of(text), Catch::Contains("unknown key; nearest known key: " + nearest));
    }
    CHECK(problem_of(R"({"log": {"zzzzzzzz": 1}})") == "f.json:1: /log/zzzzzzzz: unknown key; known here: level");
    CHECK_THAT(problem_of("{\"" + std::string(5000, 'a') + "\": 1}"), Catch::Contains("known here: "));
    CHECK_THAT(problem_of(R"({"nothing": null})"), Catch::Contains("unknown key"));
}

TEST_CASE("heaps are checked one by one", "[configuration_schema]") {
    const auto heaps = [](const std::string& list) { return problems_of("{\"arena\": {\"heaps\": " + list + "}}"); };
    CHECK(heaps(R"(["dma_heap:system", "dma_heap:linux,cma", "udmabuf", "memfd"])").empty());
    for (const char* list : {"[]", R"(["memfd", "memfd"])", R"(["dma_heap:"])", R"(["dma_heap:../sda"])", "[null]",
                             "[1]", R"(["memfd\n"])", R"("memfd")", R"(["dma_heap:a/b"])", "[[]]"}) {
        INFO(list);
        CHECK(heaps(list).size() == 1);
    }
    CHECK_THAT(heaps(R"(["memfd", "ion"])").front(), Catch::StartsWith("f.json:1: /arena/heaps/1: \"ion\" is unknown"));
    CHECK(heaps("[\"dma_heap:" + std::string(100000, 'a') + "\"]").size() == 1);
}

TEST_CASE("all problems are told at once", "[configuration_schema]") {
    CHECK(problems_of(R"({"log": {"level": 1}, "windows": {"deadline_ms": 0, "x": 1}, "y": 2})").size() == 4);
}
