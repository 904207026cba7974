#include "listing.hpp"

#include <cstdint>
#include <cstdio>
#include <map>
#include <utility>

#include "bus_client.hpp"
#include "hub_clock.hpp"
#include "table.hpp"

namespace perceptctl {
namespace {

constexpr const char* kRoot = "/org/perceptd1";
constexpr const char* kManager = "org.perceptd1.Manager";
constexpr const char* kSensor = "org.perceptd1.Sensor";
constexpr const char* kSession = "org.perceptd1.Session";

std::string last_part(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

/// The age of a stamp in milliseconds; null when nothing was captured yet.
Json age_ms(const Json& captured_at_ns) {
    const auto at_ns = captured_at_ns.get<std::int64_t>();
    return at_ns == 0 ? Json() : Json(static_cast<double>((monotonic_ns() - at_ns) / 10'000) / 100);
}

Json describe_sensor(const std::string& path, const Json& properties) {
    return {{"name", last_part(path)},
            {"kind", properties.at("Kind")},
            {"origin", properties.at("Origin")},
            {"format", properties.at("Format")},
            {"health", properties.at("Health")},
            {"session_count", properties.at("SessionCount")},
            {"captured_at_ns", properties.at("CapturedAt")},
            {"age_ms", age_ms(properties.at("CapturedAt"))},
            {"counters", properties.at("Counters")}};
}

Json describe_session(const Json& properties) {
    return {{"id", properties.at("Id")},
            {"state", properties.at("State")},
            {"owner_uid", properties.at("OwnerUid")},
            {"owner_pid", properties.at("OwnerPid")},
            {"label", properties.at("Label")},
            {"sensors", properties.at("Sensors")},
            {"captured_at_ns", properties.at("CapturedAt")},
            {"age_ms", age_ms(properties.at("CapturedAt"))},
            {"windows_in_flight", properties.at("WindowsInFlight").at(0)},
            {"windows_in_flight_max", properties.at("WindowsInFlight").at(1)},
            {"counters", properties.at("Counters")}};
}

/// One description per object that has `interface`.
Json list(BusClient& bus, const char* interface) {
    std::map<std::pair<std::size_t, std::string>, Json> sorted;  // by length first: session 10 comes after session 9
    const Json objects = bus.objects();
    for (const auto& [path, interfaces] : objects.items()) {
        if (interfaces.contains(interface)) {
            const Json& properties = interfaces.at(interface);
            sorted[{path.size(), path}] =
                interface == kSensor ? describe_sensor(path, properties) : describe_session(properties);
        }
    }
    Json found = Json::array();
    for (auto& [place, description] : sorted) {
        found.push_back(std::move(description));
    }
    return found;
}

std::string text_of(const Json& value) {
    if (value.is_null()) {
        return "-";
    }
    if (value.is_array()) {
        std::string text;
        for (const Json& item : value) {
            text += (text.empty() ? "" : ",") + text_of(item);
        }
        return text.empty() ? "-" : text;
    }
    if (value.is_number_float()) {
        char text[32];
        std::snprintf(text, sizeof(text), "%.6g", value.get<double>());
        return text;
    }
    return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string age_text(const Json& sensor_or_session) {
    const Json& age = sensor_or_session.at("age_ms");
    return age.is_null() ? "-" : text_of(age) + " ms";
}

std::string format_text(const Json& format) {
    const auto has = [&format](const char* key) { return format.contains(key); };
    std::string text;
    if (has("width_px") && has("height_px")) {
        text = text_of(format.at("width_px")) + "x" + text_of(format.at("height_px")) + " ";
    }
    if (has("channel_count")) {
        text = text_of(format.at("channel_count")) + " ch ";
    }
    return text + (has("rate_hz") ? text_of(format.at("rate_hz")) + " Hz" : "");
}

std::uint64_t sum(const Json& counters, std::initializer_list<const char*> names) {
    std::uint64_t total = 0;
    for (const char* const name : names) {
        total += counters.value(name, std::uint64_t{0});
    }
    return total;
}

void print(const std::string& text) {
    std::fputs(text.c_str(), stdout);
}

void print_sensors(const Json& sensors) {
    Table table({"SENSOR", "HEALTH", "SESSIONS", "FORMAT", "AGE", "DELIVERED", "DROPPED", "GAPS", "ORIGIN"});
    for (const Json& sensor : sensors) {
        const Json& counters = sensor.at("counters");
        table.add({text_of(sensor.at("name")), text_of(sensor.at("health")), text_of(sensor.at("session_count")),
                   format_text(sensor.at("format")), age_text(sensor), text_of(counters.at("delivered")),
                   std::to_string(sum(counters, {"dropped_no_slot", "dropped_queue_full", "invalid"})),
                   text_of(counters.at("gaps")), text_of(sensor.at("origin"))});
    }
    print(table.row_count() > 0
              ? table.to_text()
              : "no sensor is configured: set /sensors/camera/source in /etc/perceptd/perceptd.json\n");
}

void flatten(const Json& value, const std::string& pointer, Table& table) {
    if (!value.is_object()) {
        table.add({pointer, text_of(value)});
        return;
    }
    for (const auto& [key, member] : value.items()) {
        flatten(member, pointer + "/" + key, table);
    }
}

int print_json(const Json& value) {
    print(value.dump(2) + "\n");
    return 0;
}

}  // namespace

int show_status(const ListingOptions& options) {
    BusClient bus(options.bus);
    const Json manager = bus.properties(kRoot, kManager);
    const Json sensors = list(bus, kSensor);
    if (options.json) {
        return print_json({{"version", manager.at("Version")},
                           {"channel_version_min", manager.at("ChannelVersions").at(0)},
                           {"channel_version_max", manager.at("ChannelVersions").at(1)},
                           {"session_count", manager.at("SessionCount")},
                           {"sensors", sensors}});
    }
    print("perceptd " + text_of(manager.at("Version")) + ", channel protocol " +
          text_of(manager.at("ChannelVersions").at(0)) + " to " + text_of(manager.at("ChannelVersions").at(1)) + ", " +
          text_of(manager.at("SessionCount")) + " open sessions\n\n");
    print_sensors(sensors);
    return 0;
}

int show_sensors(const ListingOptions& options) {
    BusClient bus(options.bus);
    const Json sensors = list(bus, kSensor);
    if (options.json) {
        return print_json(sensors);
    }
    print_sensors(sensors);
    return 0;
}

int show_sessions(const ListingOptions& options) {
    BusClient bus(options.bus);
    const Json sessions = list(bus, kSession);
    if (options.json) {
        return print_json(sessions);
    }
    Table table({"ID", "STATE", "UID", "PID", "SENSORS", "HELD", "SENT", "LOST", "REVOKED", "AGE", "LABEL"});
    for (const Json& session : sessions) {
        const Json& counters = session.at("counters");
        table.add({text_of(session.at("id")), text_of(session.at("state")), text_of(session.at("owner_uid")),
                   text_of(session.at("owner_pid")), text_of(session.at("sensors")),
                   text_of(session.at("windows_in_flight")) + "/" + text_of(session.at("windows_in_flight_max")),
                   text_of(counters.at("sent")),
                   std::to_string(sum(counters, {"lost_unread", "lost_unreleased", "lost_upstream"})),
                   text_of(counters.at("revoked")), age_text(session), text_of(session.at("label"))});
    }
    print(table.row_count() > 0 ? table.to_text() : "no session is open\n");
    return 0;
}

int show_config(const ListingOptions& options) {
    BusClient bus(options.bus);
    const std::string text = bus.properties(kRoot, kManager).at("Configuration").get<std::string>();
    const Json configuration = Json::parse(text);
    if (options.json) {
        return print_json(configuration);
    }
    Table table({"KEY", "VALUE"});
    flatten(configuration, "", table);
    print(table.to_text());
    return 0;
}

}  // namespace perceptctl
