#include "ledger.hpp"

#include <cstdint>
#include <cstdio>
#include <ctime>

#include "bus_client.hpp"
#include "table.hpp"

namespace perceptctl {
namespace {

constexpr const char* kPath = "/org/perceptd1/ledger";
constexpr const char* kInterface = "org.perceptd1.Ledger";

std::string time_text(const Json& at_ms) {
    const auto seconds = static_cast<std::time_t>(at_ms.get<std::int64_t>() / 1000);
    std::tm local{};
    char text[32] = "?";
    if (::localtime_r(&seconds, &local) != nullptr) {
        static_cast<void>(std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local));
    }
    return text;
}

/// The bus's tuples with names.
Json described(const Json& summary) {
    Json models = Json::array();
    for (const Json& row : summary.at("models")) {
        models.push_back({{"model", row.at(0)}, {"answers", row.at(1)}, {"tokens", row.at(2)}});
    }
    Json uses = Json::array();
    for (const Json& row : summary.at("sensor_uses")) {
        const bool is_known = row.at(5).get<std::int64_t>() >= 0;
        uses.push_back({{"uid", row.at(0)},
                        {"pid", row.at(1)},
                        {"program", row.at(2)},
                        {"sensor", row.at(3)},
                        {"from_ms", row.at(4)},
                        {"to_ms", is_known ? row.at(5) : Json()},
                        {"is_over", row.at(6)}});
    }
    Json milestones = Json::array();
    for (const Json& row : summary.at("milestones")) {
        milestones.push_back({{"kind", row.at(0)}, {"value", row.at(1)}, {"reached_at_ms", row.at(2)}});
    }
    return {{"sessions", summary.at("sessions")},
            {"answers", summary.at("answers")},
            {"tokens", summary.at("tokens")},
            {"active_days", summary.at("active_days")},
            {"models", models},
            {"sensor_uses", uses},
            {"milestones", milestones}};
}

void print_text(const Json& ledger) {
    std::printf("%s sessions, %s answers of %s tokens, %s active days; kept on this device alone\n",
                ledger.at("sessions").dump().c_str(), ledger.at("answers").dump().c_str(),
                ledger.at("tokens").dump().c_str(), ledger.at("active_days").dump().c_str());
    Table models({"MODEL", "ANSWERS", "TOKENS"});
    for (const Json& model : ledger.at("models")) {
        models.add({model.at("model").get<std::string>(), model.at("answers").dump(), model.at("tokens").dump()});
    }
    if (models.row_count() > 0) {
        std::printf("\n%s", models.to_text().c_str());
    }
    Table uses({"SENSOR", "FROM", "TO", "UID", "PID", "PROGRAM"});
    for (const Json& use : ledger.at("sensor_uses")) {
        const std::string to = !use.at("to_ms").is_null()      ? time_text(use.at("to_ms"))
                               : use.at("is_over").get<bool>() ? "not known"
                                                               : "in use";
        uses.add({use.at("sensor").get<std::string>(), time_text(use.at("from_ms")), to, use.at("uid").dump(),
                  use.at("pid").dump(), use.at("program").get<std::string>()});
    }
    if (uses.row_count() > 0) {
        std::printf("\n%s", uses.to_text().c_str());
    }
}

}  // namespace

int show_or_erase_ledger(const LedgerOptions& options) {
    BusClient bus(options.bus);
    if (options.erases) {
        const Json count = bus.ask(kPath, kInterface, "Erase", options.everybody);
        if (options.json) {
            std::printf("%s\n", Json{{"erased_answers", count}}.dump(2).c_str());
        } else {
            std::printf("the ledger is erased, and %s kept answers\n", count.dump().c_str());
        }
        return 0;
    }
    const Json ledger = described(bus.ask(kPath, kInterface, "Read", options.everybody));
    if (options.json) {
        std::printf("%s\n", ledger.dump(2).c_str());
    } else {
        print_text(ledger);
    }
    return 0;
}

}  // namespace perceptctl
