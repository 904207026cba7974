#include "bus_client.hpp"

#include <systemd/sd-bus.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace perceptctl {
namespace {

constexpr const char* kBusName = "org.perceptd1";
constexpr std::uint64_t kAnswerUs = 5'000'000;

struct Unref {
    void operator()(sd_bus_message* message) const noexcept { sd_bus_message_unref(message); }
};
using Message = std::unique_ptr<sd_bus_message, Unref>;

void check(int result) {
    if (result < 0) {
        throw std::runtime_error(std::string("perceptd's answer cannot be read: ") + std::strerror(-result) +
                                 "; update perceptctl and perceptd to the same version");
    }
}

template <typename Value>
Json basic(sd_bus_message* message, char type) {
    Value value{};
    check(sd_bus_message_read_basic(message, type, &value));
    return value;
}

Json read_value(sd_bus_message* message);

Json read_members(sd_bus_message* message, char container, const char* contents) {
    check(sd_bus_message_enter_container(message, container, contents));
    const bool is_map = container == SD_BUS_TYPE_ARRAY && contents[0] == '{';
    Json members = is_map ? Json::object() : Json::array();
    while (sd_bus_message_at_end(message, 0) == 0) {
        if (!is_map) {
            members.push_back(read_value(message));
            continue;
        }
        check(sd_bus_message_enter_container(message, SD_BUS_TYPE_DICT_ENTRY, nullptr));
        const Json key = read_value(message);
        members[key.is_string() ? key.get<std::string>() : key.dump()] = read_value(message);
        check(sd_bus_message_exit_container(message));
    }
    check(sd_bus_message_exit_container(message));
    return members;
}

/// The next value of any type; D-Bus itself bounds how deep they nest.
Json read_value(sd_bus_message* message) {
    char type = 0;
    const char* contents = nullptr;
    check(sd_bus_message_peek_type(message, &type, &contents));
    switch (type) {
        case SD_BUS_TYPE_BOOLEAN: return basic<int>(message, type).get<int>() != 0;
        case SD_BUS_TYPE_BYTE: return basic<std::uint8_t>(message, type);
        case SD_BUS_TYPE_INT16: return basic<std::int16_t>(message, type);
        case SD_BUS_TYPE_UINT16: return basic<std::uint16_t>(message, type);
        case SD_BUS_TYPE_INT32: return basic<std::int32_t>(message, type);
        case SD_BUS_TYPE_UINT32: return basic<std::uint32_t>(message, type);
        case SD_BUS_TYPE_INT64: return basic<std::int64_t>(message, type);
        case SD_BUS_TYPE_UINT64: return basic<std::uint64_t>(message, type);
        case SD_BUS_TYPE_DOUBLE: return basic<double>(message, type);
        case SD_BUS_TYPE_STRING:
        case SD_BUS_TYPE_OBJECT_PATH:
        case SD_BUS_TYPE_SIGNATURE: return basic<const char*>(message, type);
        case SD_BUS_TYPE_ARRAY:
        case SD_BUS_TYPE_STRUCT: return read_members(message, type, contents);
        case SD_BUS_TYPE_VARIANT: {
            check(sd_bus_message_enter_container(message, type, contents));
            Json value = read_value(message);
            check(sd_bus_message_exit_container(message));
            return value;
        }
        default: check(-EBADMSG);
    }
    return nullptr;
}

/// What went wrong, and what to do about it.
std::string explain(const sd_bus_error& error, const std::string& bus) {
    const std::string_view name = error.name != nullptr ? error.name : "";
    const std::string text = error.message != nullptr ? error.message : "no reason given";
    const auto starts = [&name](std::string_view prefix) { return name.substr(0, prefix.size()) == prefix; };
    if (name == SD_BUS_ERROR_SERVICE_UNKNOWN || name == SD_BUS_ERROR_NAME_HAS_NO_OWNER ||
        starts("org.freedesktop.DBus.Error.Spawn.") || starts("org.freedesktop.systemd1.")) {
        return "perceptd is not on " + bus + ": start it with 'systemctl start perceptd', or name its bus with --bus";
    }
    if (name == SD_BUS_ERROR_ACCESS_DENIED) {
        return "you may not talk to perceptd on " + bus + ": " + text + "; ask the device's owner";
    }
    if (name == SD_BUS_ERROR_NO_REPLY || name == SD_BUS_ERROR_TIMEOUT) {
        return "perceptd does not answer: look at 'journalctl -u perceptd'";
    }
    if (name == SD_BUS_ERROR_UNKNOWN_METHOD || name == SD_BUS_ERROR_UNKNOWN_OBJECT ||
        name == SD_BUS_ERROR_UNKNOWN_INTERFACE) {
        return "this perceptd does not know what was asked: update perceptctl and perceptd to the same version";
    }
    return "perceptd says: " + text;
}

std::string display_name(const std::string& bus) {
    return bus == "system" || bus == "session" ? "the " + bus + " bus" : "the bus at '" + bus + "'";
}

int open(const std::string& bus, sd_bus** opened) {
    if (bus == "system") {
        return sd_bus_open_system(opened);
    }
    if (bus == "session") {
        return sd_bus_open_user(opened);
    }
    int result = sd_bus_new(opened);
    result = result < 0 ? result : sd_bus_set_address(*opened, bus.c_str());
    result = result < 0 ? result : sd_bus_set_bus_client(*opened, 1);
    return result < 0 ? result : sd_bus_start(*opened);
}

}  // namespace

void BusClient::Close::operator()(sd_bus* bus) const noexcept {
    sd_bus_flush_close_unref(bus);
}

BusClient::BusClient(const std::string& bus) : name_(display_name(bus)) {
    sd_bus* opened = nullptr;
    const int result = open(bus, &opened);
    bus_.reset(opened);
    if (result < 0) {
        throw std::runtime_error(name_ + " cannot be reached (" + std::strerror(-result) +
                                 "): start dbus, or name perceptd's bus with --bus=ADDRESS");
    }
}

Json BusClient::call(const std::string& path, const char* interface, const char* method, char argument_type,
                     const void* argument) {
    sd_bus_message* question = nullptr;
    check(sd_bus_message_new_method_call(bus_.get(), &question, kBusName, path.c_str(), interface, method));
    const Message owned_question(question);
    if (argument_type != 0) {
        check(sd_bus_message_append_basic(question, argument_type, argument));
    }
    sd_bus_error error = SD_BUS_ERROR_NULL;
    sd_bus_message* answer = nullptr;
    const int result = sd_bus_call(bus_.get(), question, kAnswerUs, &error, &answer);
    const Message owned_answer(answer);
    if (result < 0) {
        const std::string reason = explain(error, name_);
        sd_bus_error_free(&error);
        throw std::runtime_error(reason);
    }
    return read_value(answer);
}

Json BusClient::properties(const std::string& path, const std::string& interface) {
    return call(path, "org.freedesktop.DBus.Properties", "GetAll", SD_BUS_TYPE_STRING, interface.c_str());
}

Json BusClient::objects() {
    return call("/org/perceptd1", "org.freedesktop.DBus.ObjectManager", "GetManagedObjects", 0, nullptr);
}

Json BusClient::ask(const std::string& path, const char* interface, const char* method, bool argument) {
    const int value = argument ? 1 : 0;
    return call(path, interface, method, SD_BUS_TYPE_BOOLEAN, &value);
}

}  // namespace perceptctl
