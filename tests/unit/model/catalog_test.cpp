#include "model/catalog.hpp"

#include <catch2/catch.hpp>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "package_files.hpp"

using namespace perceptd;
using namespace perceptd::model;
using namespace perceptd::model::test;

namespace {

struct Shelf {
    TemporaryFolder root;
    std::string content = small_decoder();
    Catalog catalog{{{(root.path() / "a").string(), (root.path() / "b").string()}, Backing::Mapped, {1000}}};

    void add(const std::string& place, const std::string& name, const std::string& version) {
        put_package(root.path() / place, good_manifest(name, version, content), content);
    }
    [[nodiscard]] std::string listing() const {
        std::string text;
        for (const CatalogEntry& entry : catalog.list()) {
            const char* const states[] = {"available", "loaded", "broken"};
            text += entry.name + " " + entry.version + " " + states[static_cast<int>(entry.state)] + "\n";
        }
        return text;
    }
};

}  // namespace

TEST_CASE("Packages are listed by name and newest version, broken ones with the reason") {
    Shelf shelf;
    CHECK(shelf.catalog.scan() == 0);  // folders that are not there hold nothing
    shelf.add("a/1", "talk", "1.0.0");
    shelf.add("a/2", "talk", "1.10.0");
    shelf.add("a/3", "talk", "2.0.0-beta");
    shelf.add("a/4", "see", "0.1.0");
    shelf.add("b/5", "talk", "1.0.0");  // again, in a later folder
    put_folder(shelf.root.path() / "b" / "6");
    put_folder(shelf.root.path() / "b" / ".hidden");
    CHECK(shelf.catalog.scan() == 2);
    CHECK(shelf.listing() ==
          "see 0.1.0 available\ntalk 2.0.0-beta available\ntalk 1.10.0 available\ntalk 1.0.0 available\n"
          "talk 1.0.0 broken\n  broken\n");
    CHECK_THAT(shelf.catalog.list()[4].reason,
               Catch::Contains("the same name and version as") && Catch::EndsWith("a/1"));
    CHECK_THAT(shelf.catalog.list()[5].reason, Catch::Contains("manifest.json"));
    CHECK(shelf.catalog.list()[0].size_bytes == shelf.content.size());
}

TEST_CASE("The newest version that is no prerelease is loaded unless one is named") {
    Shelf shelf;
    shelf.add("a/1", "talk", "1.0.0");
    shelf.add("a/2", "talk", "1.10.0");
    shelf.add("a/3", "talk", "2.0.0-beta");
    shelf.add("a/4", "early", "0.1.0-alpha");
    shelf.catalog.scan();
    CHECK(shelf.catalog.load("talk", "", 0)->manifest.version.text == "1.10.0");
    CHECK(shelf.catalog.load("talk", "2.0.0-beta", 0)->manifest.version.text == "2.0.0-beta");
    CHECK(shelf.catalog.load("early", "", 0)->manifest.version.text == "0.1.0-alpha");
    CHECK_THROWS_WITH(shelf.catalog.load("talk", "3.0.0", 0), Catch::Contains("no model talk 3.0.0"));
    CHECK_THROWS_AS(shelf.catalog.load("walk", "", 0), Error);
    CHECK_THROWS_AS(shelf.catalog.pin("walk", "", true), Error);
}

TEST_CASE("An activated version is the one that is meant, until it goes") {
    Shelf shelf;
    shelf.add("a/1", "talk", "1.0.0");
    shelf.add("a/2", "talk", "2.0.0");
    shelf.add("a/3", "walk", "3.0.0");
    shelf.catalog.scan();
    const auto version = [&] { return shelf.catalog.load("talk", "", 0)->manifest.version.text; };
    const auto active = [&] {
        std::string all;
        for (const CatalogEntry& entry : shelf.catalog.list()) {
            all += entry.is_active ? entry.name + entry.version : "";
        }
        return all;
    };
    CHECK(version() == "2.0.0");
    shelf.catalog.activate("talk", "1.0.0");
    CHECK(version() == "1.0.0");
    CHECK(shelf.catalog.load("talk", "2.0.0", 0)->manifest.version.text == "2.0.0");
    CHECK(shelf.catalog.load("walk", "", 0)->manifest.version.text == "3.0.0");
    CHECK_THROWS_WITH(shelf.catalog.activate("talk", "7.0.0"), Catch::Contains("no model talk 7.0.0"));
    CHECK(active() == "talk1.0.0");
    shelf.content = small_decoder(1);
    shelf.add("a/1", "talk", "1.0.0");
    shelf.catalog.scan();
    CHECK(active() == "talk1.0.0");
    shelf.catalog.activate("talk", "2.0.0");
    CHECK(active() == "talk2.0.0");
    shelf.catalog.activate("talk", "");
    CHECK(active().empty());
    shelf.catalog.activate("talk", "1.0.0");
    std::filesystem::remove_all(shelf.root.path() / "a" / "1");
    shelf.catalog.scan();
    CHECK(version() == "2.0.0");
}

TEST_CASE("Only idle models go, and pinned ones stay") {
    Shelf shelf;
    shelf.add("a/1", "one", "1.0.0");
    shelf.add("a/2", "two", "1.0.0");
    shelf.add("a/3", "three", "1.0.0");
    shelf.catalog.scan();
    const std::int64_t now_ns = monotonic_ns();
    Catalog::Use used = shelf.catalog.load("one", "", now_ns);
    static_cast<void>(shelf.catalog.load("two", "", now_ns));
    static_cast<void>(shelf.catalog.load("three", "", now_ns));
    shelf.catalog.pin("three", "", true);
    CHECK(shelf.catalog.evict_idle(now_ns) == 0);
    constexpr std::int64_t kLater = 3600 * kNsPerSecond;
    CHECK(shelf.catalog.evict_idle(now_ns + kLater) == 1);
    CHECK(shelf.listing() == "one 1.0.0 loaded\nthree 1.0.0 loaded\ntwo 1.0.0 available\n");
    CHECK(used->manifest.name == "one");
    used = {};
    shelf.catalog.pin("three", "", false);
    CHECK(shelf.catalog.evict_idle(now_ns + kLater) == 2);
    CHECK(IdleEviction{10}.is_due(5, 15));
    CHECK_FALSE(IdleEviction{10}.is_due(5, 14));
}

TEST_CASE("A new scan replaces the listing and leaves models in use alone") {
    Shelf shelf;
    shelf.add("a/1", "kept", "1.0.0");
    shelf.add("a/2", "gone", "1.0.0");
    shelf.add("a/3", "changed", "1.0.0");
    shelf.catalog.scan();
    const Catalog::Use kept = shelf.catalog.load("kept", "", 0);
    Catalog::Use gone = shelf.catalog.load("gone", "", 0);
    const Catalog::Use changed = shelf.catalog.load("changed", "", 0);
    std::filesystem::remove_all(shelf.root.path() / "a" / "2");
    shelf.content = small_decoder(1);
    shelf.add("a/3", "changed", "1.0.0");
    CHECK(shelf.catalog.scan() == 0);
    CHECK(shelf.listing() == "changed 1.0.0 available\nkept 1.0.0 loaded\n");
    CHECK(shelf.catalog.load("kept", "", 0)->main.file.bytes().data() == kept->main.file.bytes().data());
    CHECK(gone->main.tokenizer.vocabulary().size() == 260);
    CHECK(changed->main.tokenizer.vocabulary().size() == 260);
    CHECK(shelf.catalog.load("changed", "", 0)->main.tokenizer.vocabulary().size() == 261);
    gone = {};
    CHECK(shelf.catalog.evict_idle(0) == 1);
}

TEST_CASE("A package whose files are wrong is found out when it is loaded, and can be mended") {
    Shelf shelf;
    shelf.add("a/1", "talk", "1.0.0");
    put_file(shelf.root.path() / "a" / "1" / "model.gguf", "X" + shelf.content.substr(1));
    CHECK(shelf.catalog.scan() == 0);
    CHECK_THROWS_WITH(shelf.catalog.load("talk", "", 0), Catch::Contains("differs from its manifest"));
    CHECK(shelf.catalog.list()[0].state == PackageState::Broken);
    CHECK_THAT(shelf.catalog.list()[0].reason, Catch::Contains("differs from its manifest"));
    CHECK_THROWS_AS(shelf.catalog.load("talk", "", 0), Error);
    shelf.add("a/1", "talk", "1.0.0");
    shelf.catalog.scan();
    CHECK(shelf.catalog.load("talk", "", 0)->main.decoder.layers.size() == 1);
}
