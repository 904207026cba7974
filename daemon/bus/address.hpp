// Which message bus the daemon is on.
// Owns its text.
// Never connects.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace perceptd::bus {

struct Address {
    enum class Kind : std::uint8_t { System, Session, Private };
    Kind kind = Kind::System;
    std::string text;  ///< Private: a D-Bus address such as "unix:path=/run/bus"
};

/// "system", "session", or a D-Bus address.
inline Address address_of(std::string_view text) {
    if (text == "system") {
        return {};
    }
    return text == "session" ? Address{Address::Kind::Session, {}} : Address{Address::Kind::Private, std::string(text)};
}

}  // namespace perceptd::bus
