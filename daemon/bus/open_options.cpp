#include "bus/open_options.hpp"

#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "bus/daemon_view.hpp"

namespace perceptd::bus {
namespace {

using sensor::Kind;
using OpenOptions = session::Registry::OpenOptions;

constexpr std::size_t kKeysMax = 16;
constexpr std::size_t kLabelBytesMax = 64;
constexpr std::size_t kQuotedBytesMax = 64;

[[noreturn]] void refuse(const std::string& reason) {
    throw Error(ErrorCode::InvalidArgument, reason);
}

/// A caller's word for an error's text: short enough to be read.
std::string quoted(const std::string& word) {
    if (word.size() <= kQuotedBytesMax) {
        return "'" + word + "'";
    }
    std::size_t end = kQuotedBytesMax;
    while (end > 0 && (static_cast<unsigned char>(word[end]) & 0xC0u) == 0x80u) {
        --end;  // not inside a UTF-8 sequence: the bus would refuse the text
    }
    return "'" + word.substr(0, end) + "...'";
}

template <typename Value>
Value value_of(const std::string& key, const sdbus::Variant& variant) {
    if (!variant.containsValueOfType<Value>()) {
        refuse("option " + quoted(key) + " has type '" + variant.peekValueType() + "'; give it type '" +
               sdbus::signature_of<Value>::str() + "'");
    }
    return variant.get<Value>();
}

session::SensorSet sensors_of(const std::vector<std::string>& words) {
    session::SensorSet sensors;
    for (const std::string& word : words) {
        bool is_known = false;
        for (const Kind kind : sensor::kKinds) {
            if (word == word_of(kind)) {
                sensors.add(kind);
                is_known = true;
            }
        }
        if (!is_known) {
            refuse("there is no sensor " + quoted(word) + "; name camera, microphone or imu");
        }
    }
    return sensors;
}

std::string label_of(const std::string& text) {
    if (text.size() > kLabelBytesMax) {
        refuse("'label' has " + std::to_string(text.size()) + " bytes; give it at most " +
               std::to_string(kLabelBytesMax));
    }
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const bool is_c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
        if (byte >= 0x20 && byte != 0x7F && !is_c1) {
            continue;
        }
        refuse("'label' has control characters, which would garble listings; leave them out");
    }
    return text;
}

void apply(const std::string& key, const sdbus::Variant& value, OpenOptions& options) {
    if (key == "sensors") {
        options.granted = sensors_of(value_of<std::vector<std::string>>(key, value));
    } else if (key == "windows-in-flight") {
        options.windows_in_flight_max = value_of<std::uint32_t>(key, value);
        if (options.windows_in_flight_max == 0) {
            refuse("'windows-in-flight' is 0; ask for at least 1, or leave it out for the limit");
        }
    } else if (key == "label") {
        options.label = label_of(value_of<std::string>(key, value));
    } else {
        refuse("there is no option " + quoted(key) + "; the options are sensors, windows-in-flight and label");
    }
}

}  // namespace

OpenOptions read_open_options(sdbus::MethodCall call) try {
    OpenOptions options;
    std::set<std::string> seen;
    if (!call.enterContainer("{sv}")) {
        return options;
    }
    while (call.enterDictEntry("sv")) {
        std::string key;
        sdbus::Variant value;
        call >> key >> value;
        static_cast<void>(call.exitDictEntry());
        if (!seen.insert(key).second || seen.size() > kKeysMax) {
            refuse("option " + quoted(key) + " is given twice, or there are too many; give each once");
        }
        apply(key, value, options);
    }
    return options;
} catch (const sdbus::Error& error) {
    throw Error(ErrorCode::InvalidArgument, "the options cannot be read: " + error.getMessage());
}

}  // namespace perceptd::bus
