// The strict pass: walks the merged document and the schema side by side and words each problem for the person
// who has to mend the file.
#include "configuration_schema.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <regex>
#include <utility>

namespace perceptd {
namespace {

using nlohmann::json;

const json& schema() {
    static const json parsed = json::parse(configuration_schema_text());
    return parsed;
}

bool is_section(const json& entry) {
    return entry.at("type") == "object";
}

void collect(const json& section, const std::string& pointer, std::vector<ConfigurationKey>& keys) {
    for (const auto& [name, entry] : section.at("properties").items()) {
        const std::string child = child_pointer(pointer, name);
        if (is_section(entry)) {
            collect(entry, child, keys);
        } else {
            keys.push_back({child, entry.at("x-unit"), entry.at("x-live"), entry.at("default")});
        }
    }
}

std::string shown(const json& value) {
    constexpr std::size_t kShownMaxBytes = 60;
    std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
    if (text.size() > kShownMaxBytes) {
        text.replace(kShownMaxBytes, std::string::npos, "...");
    }
    return text;
}

std::string joined(const json& names, const char* separator) {
    std::string text;
    for (const json& name : names) {
        text += (text.empty() ? "" : separator) + name.get<std::string>();
    }
    return text;
}

/// What `entry` takes, with its unit: "an integer, 1 .. 240 Hz".
std::string expectation(const json& entry) {
    if (is_section(entry)) {
        return "an object";
    }
    if (entry.contains("enum")) {
        return "one of " + joined(entry["enum"], " | ");
    }
    if (entry["type"] == "array") {
        return "a list of " + entry["minItems"].dump() + " .. " + entry["maxItems"].dump() +
               " different strings: " + entry["items"]["description"].get<std::string>();
    }
    const std::string kind = entry["type"] == "integer" ? "an integer" : "a number";
    return kind + ", " + entry["minimum"].dump() + " .. " + entry["maximum"].dump() + " " +
           entry["x-unit"].get<std::string>();
}

bool has_type(const json& value, const std::string& type) {
    if (type == "object") {
        return value.is_object();
    }
    if (type == "array") {
        return value.is_array();
    }
    if (type == "string") {
        return value.is_string();
    }
    if (type == "number") {
        return value.is_number();
    }
    // Draft-07: 30.0 is an integer.
    return value.is_number_integer() ||
           (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
}

/// Edits between two names, a swap of neighbours counting as one; a name that continues the other costs one edit.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    constexpr std::size_t kPrefixMin = 3;
    if (std::min(a.size(), b.size()) >= kPrefixMin && a != b && (a.starts_with(b) || b.starts_with(a))) {
        return 1;
    }
    std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) {
        for (std::size_t j = 0; j <= b.size(); ++j) {
            if (i == 0 || j == 0) {
                cost[i][j] = i + j;
                continue;
            }
            const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
            cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + change});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
            }
        }
    }
    return cost[a.size()][b.size()];
}

std::string_view parent_of(std::string_view pointer) {
    return pointer.substr(0, pointer.rfind('/'));
}
std::string_view last_of(std::string_view pointer) {
    return pointer.substr(pointer.rfind('/') + 1);
}

/// The known key or section most like `pointer`; empty when none is near. The same name elsewhere counts as near.
std::string nearest_key(std::string_view pointer) {
    constexpr std::size_t kNameMaxBytes = 64;
    const std::string_view name = last_of(pointer);
    if (name.size() > kNameMaxBytes) {
        return {};
    }
    std::string best;
    std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
    const auto consider = [&](std::string_view known) {
        const std::size_t elsewhere = parent_of(known) == parent_of(pointer) ? 0 : 1;
        const std::size_t distance = edit_distance(name, last_of(known)) + elsewhere;
        if (distance < best_distance) {
            best_distance = distance;
            best = known;
        }
    };
    for (const ConfigurationKey& key : configuration_keys()) {
        for (std::string_view known = key.pointer; !known.empty(); known = parent_of(known)) {
            consider(known);
        }
    }
    return best;
}

class Pass {
public:
    explicit Pass(const ConfigurationDocument& document) : document_(document) {}

    void check(const std::string& pointer, const json& value, const json& entry) {
        // A null that replaced a value means "the default"; nothing below it is left to check.
        if (value.is_null()) {
            return;
        }
        if (!has_type(value, entry.at("type"))) {
            report(pointer, shown(value) + " has the wrong type; expected " + expectation(entry));
        } else if (value.is_object()) {
            check_section(pointer, value, entry);
        } else if (entry.contains("enum")) {
            check_choice(pointer, value, entry);
        } else if (value.is_array()) {
            check_list(pointer, value, entry);
        } else if (value.is_number()) {
            check_number(pointer, value, entry);
        } else if (entry.contains("pattern")) {
            check_pattern(pointer, value, entry);
        }
    }

    std::vector<std::string> take() { return std::move(problems_); }

private:
    void report(const std::string& pointer, const std::string& reason) {
        std::string where;
        if (const auto origin = document_.origins.find(pointer); origin != document_.origins.end()) {
            where = origin->second.file + ":" + std::to_string(origin->second.line) + ": ";
        }
        problems_.push_back(where + pointer + ": " + reason);
    }

    void check_section(const std::string& pointer, const json& value, const json& entry) {
        const json& known = entry.at("properties");
        for (const auto& [name, inner] : value.items()) {
            const std::string child = child_pointer(pointer, name);
            if (const auto found = known.find(name); found != known.end()) {
                check(child, inner, *found);
                continue;
            }
            const std::string nearest = nearest_key(child);
            std::string names;
            for (const auto& [sibling, unused] : known.items()) {
                names += (names.empty() ? "" : ", ") + sibling;
            }
            report(child, nearest.empty() ? "unknown key; known here: " + names
                                          : "unknown key; nearest known key: " + described(nearest));
        }
    }

    /// A known pointer with what it takes.
    static std::string described(const std::string& pointer) {
        const json* entry = &schema();
        for (std::size_t at = 1; at < pointer.size();) {
            const std::size_t end = std::min(pointer.find('/', at), pointer.size());
            entry = &entry->at("properties").at(pointer.substr(at, end - at));
            at = end + 1;
        }
        return pointer + " (" + expectation(*entry) + ")";
    }

    void check_choice(const std::string& pointer, const json& value, const json& entry) {
        const json& choices = entry.at("enum");
        if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
            report(pointer, shown(value) + " is unknown; expected " + expectation(entry));
        }
    }

    void check_number(const std::string& pointer, const json& value, const json& entry) {
        const double number = value.get<double>();
        // Written so that a NaN is out of range too.
        if (!(number >= entry.at("minimum").get<double>() && number <= entry.at("maximum").get<double>())) {
            report(pointer, shown(value) + " is out of range; expected " + expectation(entry));
        }
    }

    void check_list(const std::string& pointer, const json& value, const json& entry) {
        const bool is_long_enough = value.size() >= entry.at("minItems").get<std::size_t>();
        if (!is_long_enough || value.size() > entry.at("maxItems").get<std::size_t>()) {
            report(pointer, "a list of " + std::to_string(value.size()) + "; expected " + expectation(entry));
            return;
        }
        for (std::size_t i = 0; i < value.size(); ++i) {
            const std::string child = child_pointer(pointer, std::to_string(i));
            const auto at = value.begin() + static_cast<std::ptrdiff_t>(i);
            if (!value[i].is_string() || !matches(value[i], entry.at("items"))) {
                report(child, shown(value[i]) + " is unknown; expected " + expectation(entry));
            } else if (std::find(value.begin(), at, value[i]) != at) {
                report(child, shown(value[i]) + " is listed twice; expected " + expectation(entry));
            }
        }
    }

    void check_pattern(const std::string& pointer, const json& value, const json& entry) {
        if (!matches(value, entry)) {
            report(pointer, shown(value) + " is unknown; expected " + expectation(entry));
        }
    }

    static bool matches(const json& value, const json& entry) {
        const std::string& text = value.get_ref<const std::string&>();
        constexpr std::size_t kTextMaxBytes = 256;  // std::regex recurses per character
        return text.size() <= kTextMaxBytes &&
               std::regex_match(text, std::regex(entry.at("pattern").get<std::string>()));
    }

    const ConfigurationDocument& document_;
    std::vector<std::string> problems_;
};

}  // namespace

const std::vector<ConfigurationKey>& configuration_keys() {
    static const std::vector<ConfigurationKey> keys = [] {
        std::vector<ConfigurationKey> collected;
        collect(schema(), "", collected);
        return collected;
    }();
    return keys;
}

const ConfigurationKey* find_configuration_key(std::string_view pointer) {
    const auto& keys = configuration_keys();
    const auto found = std::find_if(keys.begin(), keys.end(), [&](const auto& key) { return key.pointer == pointer; });
    return found == keys.end() ? nullptr : &*found;
}

std::vector<std::string> check_configuration(const ConfigurationDocument& document) {
    Pass pass(document);
    pass.check("", document.value, schema());
    return pass.take();
}

}  // namespace perceptd
