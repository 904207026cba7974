// The daemon's objects on the message bus, as JSON.
// Owns the connection to the bus.
// Never changes anything but what `ask` is told to, and never waits longer than a few seconds.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

struct sd_bus;

namespace perceptctl {

using Json = nlohmann::ordered_json;

/// Every error is a std::runtime_error of one sentence that says what to do next.
class BusClient {
public:
    /// `bus` is "system", "session" or a D-Bus address.
    explicit BusClient(const std::string& bus);

    /// The properties of one object's interface: {"Version": "0.1.0", ...}.
    [[nodiscard]] Json properties(const std::string& path, const std::string& interface);
    /// Everything below /org/perceptd1: {path: {interface: {property: value}}}.
    [[nodiscard]] Json objects();
    /// Calls a method with one boolean; its first result.
    [[nodiscard]] Json ask(const std::string& path, const char* interface, const char* method, bool argument);

private:
    struct Close {
        void operator()(sd_bus* bus) const noexcept;
    };

    /// `argument_type` 0: none.
    [[nodiscard]] Json call(const std::string& path, const char* interface, const char* method, char argument_type,
                            const void* argument);

    std::string name_;
    std::unique_ptr<sd_bus, Close> bus_;
};

}  // namespace perceptctl
