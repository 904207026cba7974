// The journal's side of the log: fields, and the catalogue that explains the message ids.
#include "base/log.hpp"

#include <sys/uio.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

using namespace perceptd;

namespace {

std::vector<std::map<std::string, std::string>> journal;

std::string content_of(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

}  // namespace

/// Stands in for libsystemd's: what would go to the journal's socket is kept here.
extern "C" int sd_journal_sendv(const iovec* parts, int count) {
    std::map<std::string, std::string>& entry = journal.emplace_back();
    for (int i = 0; i < count; ++i) {
        const std::string field(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
        entry[field.substr(0, field.find('='))] = field.substr(field.find('=') + 1);
    }
    return 0;
}

TEST_CASE("journal entries carry priority, category and, where catalogued, their id") {
    journal.clear();
    log::open(log::Level::Info, true);
    log::debug("base", "below the level");
    log::warning("base", "plain");
    for (const log::CataloguedMessage& known : log::kCatalogue) {
        log::write(known.message, log::Level::Info, "base", known.name);
    }
    log::open(log::Level::Info, false);
    REQUIRE(journal.size() == 1 + log::kCatalogue.size());
    CHECK(journal[0]["MESSAGE"] == "base: plain");
    CHECK(journal[0]["PRIORITY"] == "4");
    CHECK(journal[0]["PERCEPTD_CATEGORY"] == "base");
    CHECK(journal[0]["SYSLOG_IDENTIFIER"] == "perceptd");
    CHECK(journal[0].count("MESSAGE_ID") == 0);
    for (std::size_t i = 0; i < log::kCatalogue.size(); ++i) {
        CHECK(journal[i + 1]["MESSAGE"] == std::string("base: ") + log::kCatalogue[i].name);
        CHECK(journal[i + 1]["MESSAGE_ID"] == log::kCatalogue[i].id);
    }
}

TEST_CASE("every message id is in the catalogue under its name, and no other is") {
    const std::string text = content_of(std::filesystem::path(PERCEPTD_SOURCE_ROOT) / "systemd/perceptd.catalog");
    std::map<std::string, std::string> catalogue;
    const std::regex entry("# (\\w+)\n-- ([0-9a-f]{32})\n");
    for (std::sregex_iterator at(text.begin(), text.end(), entry), end; at != end; ++at) {
        catalogue[(*at)[1]] = (*at)[2];
    }
    const std::regex any_entry("(^|\n)-- ");
    REQUIRE(std::distance(std::sregex_iterator(text.begin(), text.end(), any_entry), std::sregex_iterator()) ==
            static_cast<std::ptrdiff_t>(catalogue.size()));
    std::map<std::string, std::string> sent;
    for (const log::CataloguedMessage& known : log::kCatalogue) {
        sent[known.name] = known.id;
    }
    CHECK(sent == catalogue);
}

TEST_CASE("every catalogued message is sent from somewhere") {
    std::string sources;
    for (const auto& file :
         std::filesystem::recursive_directory_iterator(std::filesystem::path(PERCEPTD_SOURCE_ROOT) / "daemon")) {
        if (file.path().extension() == ".cpp") {
            sources += content_of(file.path());
        }
    }
    for (const log::CataloguedMessage& known : log::kCatalogue) {
        INFO(known.name);
        CHECK(sources.find(std::string("log::Message::") + known.name + ",") != std::string::npos);
    }
}

TEST_CASE("the journal listens only where stderr is the stream that systemd connected") {
    ::unsetenv("JOURNAL_STREAM");
    CHECK_FALSE(log::journal_listens());
    for (const char* stream : {"", "1", "1:", ":", "x:y", "0:0"}) {
        ::setenv("JOURNAL_STREAM", stream, 1);
        CHECK_FALSE(log::journal_listens());
    }
    ::unsetenv("JOURNAL_STREAM");
}
