// Parsing with lines, and merging with origins.
#include "configuration_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"
#include "configuration_root.hpp"

using namespace perceptd;
using nlohmann::json;
using test::ConfigurationRoot;
using test::reason_of;

namespace {

std::string parse_error_of(const std::string& text) {
    return reason_of<Error>([&] { (void)parse_configuration(text, "f.json"); });
}

/// The result of RFC 7386 without the null marks that we keep.
void remove_nulls(json& value) {
    if (!value.is_object()) {
        return;
    }
    for (auto at = value.begin(); at != value.end();) {
        if (at->is_null()) {
            at = value.erase(at);
        } else {
            remove_nulls(*at);
            ++at;
        }
    }
}

}  // namespace

TEST_CASE("every value knows its line", "[configuration_file]") {
    const auto document = parse_configuration(
        "// head\n{\n"
        "  \"a\": 1\n"
        "  ,\n"
        "  /* two\n lines */ \"b\": { \"c\": 12\n\n\n, \"d\":\n 1.5 },\n"
        "  \"e\": [ 7,\n \"x\",\n true, null ]\n}\n",
        "f.json");
    const auto line = [&](const char* pointer) { return document.origins.at(pointer).line; };
    CHECK(line("") == 2);
    CHECK(line("/a") == 3);
    CHECK(line("/b") == 6);
    CHECK(line("/b/c") == 6);
    CHECK(line("/b/d") == 10);
    CHECK(line("/e") == 11);
    CHECK(line("/e/0") == 11);
    CHECK(line("/e/1") == 12);
    CHECK(line("/e/2") == 13);
    CHECK(line("/e/3") == 13);
    CHECK(document.origins.at("/a").file == "f.json");
}

TEST_CASE("bad JSON names file and line", "[configuration_file]") {
    CHECK_THAT(parse_error_of("{\n \"a\": 1,\n}\n"), Catch::StartsWith("f.json:3: "));
    CHECK_THAT(parse_error_of("{\n \"a\": 1\n \"b\": 2}"), Catch::StartsWith("f.json:3: "));
    CHECK_THAT(parse_error_of("{\n \"a\": \"open\n}"), Catch::StartsWith("f.json:2: "));
    CHECK_THAT(parse_error_of("{ \"a\": 1 }\n\n{ }"), Catch::StartsWith("f.json:3: "));
    CHECK_THAT(parse_error_of("{\n\n\"a\": 1e999 }"), Catch::StartsWith("f.json:3: "));
    // A file of any bytes: the reason is still text.
    const std::string quoted = parse_error_of("\xff\xfe{\x01");
    CHECK_THAT(quoted, Catch::StartsWith("f.json:1: "));
    CHECK(std::all_of(quoted.begin(), quoted.end(), [](char c) { return c >= ' ' && c <= '~'; }));
    CHECK_THAT(parse_error_of("{\n \"a\": \"\xff\" }"), Catch::StartsWith("f.json:2: "));
    CHECK_THAT(parse_error_of(""), Catch::StartsWith("f.json:1: "));
    CHECK_THAT(parse_error_of("{ /* open"), Catch::StartsWith("f.json:1: "));
    CHECK_THAT(parse_error_of("\n[1]"), Catch::StartsWith("f.json:2: the whole must be an object"));
    CHECK_THAT(parse_error_of("{\n\"a\": 1,\n\"a\": 2 }"), Catch::StartsWith("f.json:3: /a: written twice"));
    CHECK_THAT(parse_error_of(std::string(100000, '[')), Catch::Contains("nested deeper"));
}

TEST_CASE("merging agrees with nlohmann's merge_patch", "[configuration_file]") {
    const std::vector<std::string> texts{R"({"a":1,"b":{"c":2,"d":[1,2]}})",
                                         R"({"b":{"c":null}})",
                                         R"({"b":3})",
                                         R"({"b":{"x":{"y":null,"z":1}}})",
                                         R"({"a":null,"b":{"d":[3]}})",
                                         R"({})",
                                         R"({"b":null})"};
    for (const auto& first : texts) {
        for (const auto& second : texts) {
            for (const auto& third : texts) {
                ConfigurationDocument merged;
                json expected = json::object();
                for (const auto& text : {first, second, third}) {
                    merge_configuration(merged, parse_configuration(text, "f"));
                    expected.merge_patch(json::parse(text));
                }
                remove_nulls(merged.value);
                INFO(first << " " << second << " " << third);
                CHECK(merged.value == expected);
            }
        }
    }
}

TEST_CASE("a merged value keeps the origin of the layer that set it", "[configuration_file]") {
    auto base = parse_configuration("{ \"a\": { \"x\": 1, \"y\": [1, 2, 3] } }", "low");
    merge_configuration(base, parse_configuration("{\n \"a\": {\n \"y\": [9] } }", "high"));
    CHECK(base.origins.at("/a/x").file == "low");
    CHECK(base.origins.at("/a/y").file == "high");
    CHECK(base.origins.at("/a/y").line == 3);
    CHECK(base.origins.count("/a/y/1") == 0);
}

TEST_CASE("keys with slashes and tildes are escaped in pointers", "[configuration_file]") {
    CHECK(child_pointer("/a", "b/c~d") == "/a/b~1c~0d");
    CHECK(parse_configuration(R"({"b/c": 1})", "f").origins.count("/b~1c") == 1);
}

TEST_CASE("layers are read in order and may be missing", "[configuration_file]") {
    const ConfigurationRoot root;
    CHECK(read_configuration_layers(root.path()).value == json::object());
    root.write(ConfigurationRoot::kVendor, R"({"k": "vendor", "v": 1})");
    CHECK(read_configuration_layers(root.path()).value["k"] == "vendor");
    root.write(ConfigurationRoot::kAdmin, R"({"k": "admin"})");
    CHECK(read_configuration_layers(root.path()).value["k"] == "admin");
    root.write("etc/perceptd/conf.d/20-b.json", R"({"k": "20"})");
    root.write("etc/perceptd/conf.d/10-a.json", R"({"k": "10", "a": 1})");
    root.write("etc/perceptd/conf.d/99-note.txt", "not read");
    root.write("etc/perceptd/conf.d/.hidden.json", "not read");
    const auto merged = read_configuration_layers(root.path());
    CHECK(merged.value == json::parse(R"({"k": "20", "a": 1, "v": 1})"));
    CHECK(merged.origins.at("/k").file == root.path() + "/etc/perceptd/conf.d/20-b.json");
}

TEST_CASE("a read-only /etc is as good as any", "[configuration_file]") {
    const ConfigurationRoot root;
    root.write(ConfigurationRoot::kAdmin, R"({"k": 1})");
    const std::string etc = root.path() + "/etc/perceptd";
    REQUIRE(::chmod(etc.c_str(), 0555) == 0);
    CHECK(read_configuration_layers(root.path()).value["k"] == 1);
    REQUIRE(::chmod(etc.c_str(), 0755) == 0);
}

TEST_CASE("a file that is there and cannot be read is an error", "[configuration_file]") {
    const ConfigurationRoot root;
    const std::string folder = root.path() + "/etc/perceptd/conf.d";
    const auto reason = [&] { return reason_of<Error>([&] { (void)read_configuration_layers(root.path()); }); };
    SECTION("a folder") {
        root.write("etc/perceptd/perceptd.json/x", "");
        CHECK_THAT(reason(), Catch::Contains("perceptd.json: cannot be read: Is a directory"));
    }
    SECTION("a FIFO does not block") {
        std::filesystem::create_directories(folder);
        REQUIRE(::mkfifo((folder + "/a.json").c_str(), 0600) == 0);
        CHECK_THAT(reason(), Catch::Contains("a.json: cannot be read"));
    }
    SECTION("a dangling link") {
        std::filesystem::create_directories(folder);
        REQUIRE(::symlink("nowhere", (folder + "/a.json").c_str()) == 0);
        CHECK_THAT(reason(), Catch::Contains("a.json: cannot be read: No such file"));
    }
    SECTION("too large") {
        root.write(ConfigurationRoot::kAdmin, "{}" + std::string(2U << 20U, ' '));
        CHECK_THAT(reason(), Catch::Contains("File too large"));
    }
    SECTION("no permission") {
        root.write(ConfigurationRoot::kAdmin, "{}");
        REQUIRE(::chmod((root.path() + "/" + ConfigurationRoot::kAdmin).c_str(), 0) == 0);
        if (::geteuid() != 0) {
            CHECK_THAT(reason(), Catch::Contains("Permission denied"));
        }
    }
}
