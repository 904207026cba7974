#include "model/package.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <system_error>

#include "base/error.hpp"
#include "model/loaded_model.hpp"
#include "package_files.hpp"

using namespace perceptd;
using namespace perceptd::model;
using namespace perceptd::model::test;
using nlohmann::json;

TEST_CASE("SHA-256 of the standard's examples") {
    CHECK(to_hex(sha256_of({})) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(to_hex(sha256_of(std::as_bytes(std::span("abc", 3)))) ==
          "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(digest_from_hex(std::string(64, 'a')).has_value());
    for (const std::string& bad :
         {std::string(63, 'a'), std::string(65, 'a'), std::string(64, 'A'), std::string(64, 'g')}) {
        CHECK_FALSE(digest_from_hex(bad));
    }
}

TEST_CASE("Versions are ordered as the standard's example is") {
    const char* const ascending[] = {"0.9.0",      "1.0.0-alpha",  "1.0.0-alpha.1", "1.0.0-alpha.beta",
                                     "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1",
                                     "1.0.0",      "1.0.1",        "1.10.0",        "2.0.0"};
    for (std::size_t i = 0; i < std::size(ascending); ++i) {
        for (std::size_t j = 0; j < std::size(ascending); ++j) {
            INFO(ascending[i] << " " << ascending[j]);
            CHECK((*Version::from(ascending[i]) <=> *Version::from(ascending[j])) == (i <=> j));
        }
    }
    CHECK(*Version::from("1.0.0+a") == *Version::from("1.0.0+b"));
    for (const char* bad : {"", "1", "1.0", "1.0.0.0", "01.0.0", "1.0.0-", "1.0.0-01", "1.0.0-a..b", "1.0.0+", "v1.0.0",
                            "1.0.x", "1.0.0 ", "4294967296.0.0"}) {
        INFO(bad);
        CHECK_FALSE(Version::from(bad));
    }
}

TEST_CASE("A manifest reads back as it was written") {
    json text = good_manifest("demo", "1.2.3-rc.1", "content");
    text["description"] = "A demo.";
    text["prompt_template"] = "U: {prompt}";
    text["draft"] = {{"package", "small"}};
    text["tokenizer_sha256"] = std::string(64, '0');
    const Manifest manifest = parse_manifest(text.dump(), "m");
    CHECK(json::parse(manifest_text(manifest)) == text);
    CHECK(manifest.version.prerelease == std::vector<std::string>{"rc", "1"});
    CHECK(manifest.find_variant("npu") == nullptr);
}

TEST_CASE("A bad manifest is refused by pointer") {
    struct Case {
        std::function<void(json&)> change;
        const char* reason;
    };
    const Case cases[] = {
        {[](json& m) { m["colour"] = "red"; }, "/colour: unknown key"},
        {[](json& m) { m.erase("licence"); }, "/licence: missing"},
        {[](json& m) { m["manifest"] = 2; }, "/manifest: this perceptd reads version 1"},
        {[](json& m) { m["manifest"] = -1; }, "/manifest: must be a whole number"},
        {[](json& m) { m["name"] = "../x"; }, "/name: must be of"},
        {[](json& m) { m["name"] = "Demo"; }, "/name: must be of"},
        {[](json& m) { m["name"] = ""; }, "/name: must be a string of 1 .. 64"},
        {[](json& m) { m["name"] = 5; }, "/name: must be a string"},
        {[](json& m) { m["version"] = "1.0"; }, "/version: must be a semantic version"},
        {[](json& m) { m["files"] = json::array(); }, "/files: must be a list"},
        {[](json& m) { m["files"] = json::object(); }, "/files: must be a list"},
        {[](json& m) { m["files"][0] = 1; }, "/files/0: must be an object"},
        {[](json& m) { m["files"][0]["mode"] = 1; }, "/files/0/mode: unknown key"},
        {[](json& m) { m["files"][0]["sha256"] = "abc"; }, "/files/0/sha256: must be a SHA-256"},
        {[](json& m) { m["files"][0]["size_bytes"] = -1; }, "/files/0/size_bytes: must be a whole number"},
        {[](json& m) { m["files"].push_back(m["files"][0]); }, "/files: model.gguf is listed twice"},
        {[](json& m) { m["files"][0]["path"] = "manifest.json"; }, "is the manifest itself"},
        {[](json& m) { m["inputs"][0]["kind"] = "smell"; }, "/inputs/0/kind"},
        {[](json& m) { m["inputs"][0]["shape"] = {-1}; }, "/inputs/0/shape"},
        {[](json& m) { m["inputs"].push_back(m["inputs"][0]); }, "/inputs: the name prompt occurs twice"},
        {[](json& m) { m["variants"][0]["file"] = "other.gguf"; }, "/variants: other.gguf is not in files"},
        {[](json& m) { m["variants"].push_back(m["variants"][0]); }, "two variants for device cpu"},
        {[](json& m) { m["prompt_template"] = "no place"; }, "must contain {prompt}"},
        {[](json& m) { m["draft"] = json::object(); }, "/draft: must have either"},
        {[](json& m) {
             m["draft"] = {{"file", "a"}, {"package", "b"}};
         },
         "/draft: must have either"},
        {[](json& m) {
             m["draft"] = {{"file", "a.gguf"}};
         },
         "/draft/file: a.gguf is not in files"},
        {[](json& m) { m["tokenizer_sha256"] = 1; }, "/tokenizer_sha256"},
        {[](json& m) { m = json::array(); }, "/: must be an object"},
    };
    for (const Case& one : cases) {
        json manifest = good_manifest("demo", "1.0.0", "x");
        one.change(manifest);
        INFO(one.reason);
        CHECK_THROWS_WITH(parse_manifest(manifest.dump(), "m"),
                          Catch::StartsWith("m: /") && Catch::Contains(one.reason));
    }
    for (const char* path :
         {"../a", "/etc/passwd", "a/../b", "./a", "a//b", "a/", ".hidden", "a\\b", "a b", "a\n", "", "a/.b"}) {
        json manifest = good_manifest("demo", "1.0.0", "x");
        manifest["files"][0]["path"] = path;
        INFO(path);
        CHECK_THROWS_WITH(parse_manifest(manifest.dump(), "m"), Catch::Contains("/files/0/path"));
    }
    CHECK_THROWS_WITH(parse_manifest("{\"name\": 1, \"name\": 2}", "m"), Catch::Contains("the key name occurs twice"));
    CHECK_THROWS_WITH(parse_manifest("{", "m"), Catch::StartsWith("m: /: "));
    CHECK_THROWS_WITH(parse_manifest(std::string(100'000, '['), "m"), Catch::StartsWith("m: /: "));
    CHECK_THROWS_WITH(parse_manifest(std::string((1 << 20) + 1, ' '), "m"), Catch::Contains("larger than 1 MiB"));
}

TEST_CASE("A package is opened, and its model loaded from the verified file") {
    const TemporaryFolder root;
    const std::string content = small_decoder();
    json manifest = good_manifest("demo", "1.0.0", content);
    manifest["files"].push_back(file_entry("sub/draft.gguf", content));
    manifest["draft"] = {{"file", "sub/draft.gguf"}};
    put_package(root.path() / "demo", manifest, content);
    put_folder(root.path() / "demo" / "sub");
    put_file(root.path() / "demo" / "sub" / "draft.gguf", content);
    const Package package = Package::open((root.path() / "demo").string());
    for (const Backing backing : {Backing::Mapped, Backing::SealedCopy}) {
        const LoadedModel loaded = LoadedModel::load(package, "cpu", backing);
        CHECK(loaded.main.decoder.config.width == 32);
        REQUIRE(loaded.draft);
        CHECK(loaded.main.tokenizer.encode("w0") == std::vector<TokenId>{1, 35, 259});  // bos, space, w0
    }
    CHECK_THROWS_WITH(LoadedModel::load(package, "npu", Backing::Mapped), Catch::Contains("no variant for device npu"));
    CHECK_THROWS_WITH(package.open_file("other", Backing::Mapped), Catch::Contains("does not list"));
}

TEST_CASE("A package that is not what its manifest says is refused") {
    struct Case {
        const char* what;
        std::function<void(const std::filesystem::path&, json&, const std::string&)> change;
        const char* reason;
    };
    const Case cases[] = {
        {"no manifest", [](const auto& p, json&, const auto&) { std::filesystem::remove(p / "manifest.json"); },
         "manifest.json"},
        {"empty manifest", [](const auto& p, json&, const auto&) { put_file(p / "manifest.json", ""); },
         "the file is empty"},
        {"no file", [](const auto& p, json&, const auto&) { std::filesystem::remove(p / "model.gguf"); }, "model.gguf"},
        {"size", [](const auto& p, json&, const auto& c) { put_file(p / "model.gguf", c + "x"); }, "the manifest says"},
        {"content", [](const auto& p, json&, const auto& c) { put_file(p / "model.gguf", "X" + c.substr(1)); },
         "differs from its manifest"},
        {"link",
         [](const auto& p, json&, const auto&) {
             std::filesystem::rename(p / "model.gguf", p / "real.gguf");
             std::filesystem::create_symlink("real.gguf", p / "model.gguf");
         },
         "without following links"},
        {"linked manifest",
         [](const auto& p, json&, const auto&) {
             std::filesystem::rename(p / "manifest.json", p / "m.json");
             std::filesystem::create_symlink("m.json", p / "manifest.json");
         },
         "without following links"},
        {"folder instead of a file",
         [](const auto& p, json&, const auto&) {
             std::filesystem::remove(p / "model.gguf");
             put_folder(p / "model.gguf");
         },
         "not a regular file"},
        {"fifo",
         [](const auto& p, json&, const auto&) {
             std::filesystem::remove(p / "model.gguf");
             ::mkfifo((p / "model.gguf").c_str(), 0644);
         },
         "not a regular file"},
        {"others may write the file",
         [](const auto& p, json&, const auto&) { ::chmod((p / "model.gguf").c_str(), 0666); }, "chmod go-w"},
        {"others may write the folder", [](const auto& p, json&, const auto&) { ::chmod(p.c_str(), 0777); },
         "chmod go-w"},
        {"tokenizer",
         [](const auto& p, json& m, const auto&) {
             m["tokenizer_sha256"] = std::string(64, '1');
             put_file(p / "manifest.json", m.dump());
         },
         "the tokenizer's digest is"},
        {"draft of another vocabulary",
         [](const auto& p, json& m, const auto&) {
             const std::string draft = small_decoder(3);
             put_file(p / "draft.gguf", draft);
             m["files"].push_back(file_entry("draft.gguf", draft));
             m["draft"] = {{"file", "draft.gguf"}};
             put_file(p / "manifest.json", m.dump());
         },
         "another vocabulary: token 260: no such id and \"w1\""},
    };
    const std::string content = small_decoder();
    for (const Case& one : cases) {
        const TemporaryFolder root;
        const auto folder = root.path() / "demo";
        json manifest = good_manifest("demo", "1.0.0", content);
        put_package(folder, manifest, content);
        one.change(folder, manifest, content);
        INFO(one.what);
        CHECK_THROWS_WITH(LoadedModel::load(Package::open(folder.string()), "cpu", Backing::Mapped),
                          Catch::Contains(one.reason));
    }
    const TemporaryFolder root;
    put_package(root.path() / "real", good_manifest("demo", "1.0.0", content), content);
    std::filesystem::create_directory_symlink("real", root.path() / "link");
    CHECK_THROWS_AS(Package::open((root.path() / "link").string()), std::system_error);
    CHECK_THROWS_AS(Package::open((root.path() / "none").string()), std::system_error);
}

TEST_CASE("A file swapped after the package was opened is hashed again, a sealed copy never changes") {
    const TemporaryFolder root;
    const auto folder = root.path() / "demo";
    const std::string content = small_decoder();
    put_package(folder, good_manifest("demo", "1.0.0", content), content);
    const Package package = Package::open(folder.string());
    const ModelFile copy = package.open_file("model.gguf", Backing::SealedCopy);
    const ModelFile mapped = package.open_file("model.gguf", Backing::Mapped);
    CHECK(mapped.is_unchanged());

    const int fd = ::open((folder / "model.gguf").c_str(), O_WRONLY | O_CLOEXEC);
    REQUIRE(fd >= 0);
    REQUIRE(::pwrite(fd, "XXXX", 4, 0) == 4);
    REQUIRE(::ftruncate(fd, static_cast<off_t>(content.size()) - 1) == 0);
    ::close(fd);
    CHECK_FALSE(mapped.is_unchanged());
    CHECK(copy.is_unchanged());
    CHECK(std::memcmp(copy.bytes().data(), content.data(), content.size()) == 0);
    CHECK_THROWS_WITH(package.open_file("model.gguf", Backing::SealedCopy),
                      Catch::Contains("differs from its manifest"));
}
