// Settings from and to JSON. for_each_setting() is the only place that pairs a key with a member, so reading,
// printing and comparing cannot disagree; a test holds it against the schema.
#include "settings.hpp"

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/contract.hpp"
#include "base/error.hpp"
#include "configuration_file.hpp"
#include "configuration_schema.hpp"

namespace perceptd {
namespace {

using nlohmann::json;

template <typename Value, std::size_t kCount>
using Names = std::array<std::pair<Value, std::string_view>, kCount>;

constexpr Names<log::Level, 4> kLevelNames{{{log::Level::Debug, "debug"},
                                            {log::Level::Info, "info"},
                                            {log::Level::Warning, "warning"},
                                            {log::Level::Error, "error"}}};
constexpr Names<SensorSource, 3> kSourceNames{
    {{SensorSource::Off, "off"}, {SensorSource::Synthetic, "synthetic"}, {SensorSource::Provider, "provider"}}};
constexpr Names<MelProfileName, 2> kMelProfileNames{
    {{MelProfileName::Kaldi, "KALDI"}, {MelProfileName::WhisperStream, "WHISPER_STREAM"}}};

constexpr Names<ModelBacking, 2> kBackingNames{
    {{ModelBacking::Mapped, "mapped"}, {ModelBacking::SealedCopy, "sealed_copy"}}};

constexpr const auto& names_of(log::Level) {
    return kLevelNames;
}
constexpr const auto& names_of(SensorSource) {
    return kSourceNames;
}
constexpr const auto& names_of(ModelBacking) {
    return kBackingNames;
}
constexpr const auto& names_of(MelProfileName) {
    return kMelProfileNames;
}

template <typename Value>
void read(const json& from, Value& to) {
    if constexpr (std::is_enum_v<Value>) {
        for (const auto& [value, name] : names_of(to)) {
            if (from.get_ref<const std::string&>() == name) {
                to = value;
                return;
            }
        }
        PERCEPTD_ASSERT(false && "a name that the schema allows and the daemon does not know");
    } else {
        from.get_to(to);
    }
}

template <typename Value>
json written(const Value& from) {
    if constexpr (std::is_enum_v<Value>) {
        for (const auto& [value, name] : names_of(from)) {
            if (value == from) {
                return std::string(name);
            }
        }
        PERCEPTD_ASSERT(false && "an enumerator without a name");
    } else {
        return from;
    }
}

/// Calls `visit(pointer, member)` for every key, in the order of the stages.
template <typename AnySettings, typename Visit>
void for_each_setting(AnySettings& settings, Visit&& visit) {
    visit("/log/level", settings.log.level);
    visit("/arena/heaps", settings.arena.heaps);
    visit("/arena/camera_slot_count", settings.arena.camera_slot_count);
    visit("/arena/audio_slot_count", settings.arena.audio_slot_count);
    visit("/sensors/camera/source", settings.sensors.camera.source);
    visit("/sensors/camera/width_px", settings.sensors.camera.width_px);
    visit("/sensors/camera/height_px", settings.sensors.camera.height_px);
    visit("/sensors/camera/rate_hz", settings.sensors.camera.rate_hz);
    visit("/sensors/microphone/source", settings.sensors.microphone.source);
    visit("/sensors/microphone/rate_hz", settings.sensors.microphone.rate_hz);
    visit("/sensors/microphone/channel_count", settings.sensors.microphone.channel_count);
    visit("/sensors/imu/source", settings.sensors.imu.source);
    visit("/sensors/imu/rate_hz", settings.sensors.imu.rate_hz);
    visit("/windows/deadline_ms", settings.windows.deadline_ms);
    visit("/windows/max_length_ms", settings.windows.max_length_ms);
    visit("/tokens/mel_profile", settings.tokens.mel_profile);
    visit("/tokens/patch_false_alarm", settings.tokens.patch_false_alarm);
    visit("/models/folders", settings.models.folders);
    visit("/models/backing", settings.models.backing);
    visit("/models/idle_eviction_s", settings.models.idle_eviction_s);
    visit("/store/folder", settings.store.folder);
    visit("/store/max_mib", settings.store.max_mib);
    visit("/store/retention_days", settings.store.retention_days);
    visit("/generation/thread_count", settings.generation.thread_count);
    visit("/generation/max_running", settings.generation.max_running);
    visit("/generation/context_tokens", settings.generation.context_tokens);
    visit("/sessions/max_count", settings.sessions.max_count);
    visit("/sessions/max_windows_in_flight", settings.sessions.max_windows_in_flight);
    visit("/threads/capture_priority", settings.threads.capture_priority);
    visit("/threads/pipeline_priority", settings.threads.pipeline_priority);
}

json to_json(const Settings& settings) {
    json document = json::object();
    for_each_setting(settings, [&](const char* pointer, const auto& member) {
        document[json::json_pointer(pointer)] = written(member);
    });
    return document;
}

/// `document` has passed the check. A key that is missing or null takes the schema's default.
Settings from_json(const json& document) {
    Settings settings;
    for_each_setting(settings, [&](const char* pointer, auto& member) {
        const ConfigurationKey* const key = find_configuration_key(pointer);
        PERCEPTD_ASSERT(key != nullptr);
        const json::json_pointer at(pointer);
        const bool is_given = document.contains(at) && !document.at(at).is_null();
        read(is_given ? document.at(at) : key->default_value, member);
    });
    return settings;
}

}  // namespace

Settings load_settings(const std::string& root) {
    const ConfigurationDocument document = read_configuration_layers(root);
    std::string problems;
    for (const std::string& problem : check_configuration(document)) {
        problems += (problems.empty() ? "" : "\n") + problem;
    }
    if (!problems.empty()) {
        throw Error(ErrorCode::InvalidConfiguration, problems);
    }
    return from_json(document.value);
}

SettingsDifference compare(const Settings& running, const Settings& wanted) {
    const json before = to_json(running);
    const json after = to_json(wanted);
    SettingsDifference difference;
    for (const ConfigurationKey& key : configuration_keys()) {
        const json::json_pointer at(key.pointer);
        if (before.at(at) != after.at(at)) {
            auto& changes = key.is_live ? difference.live : difference.restart;
            changes.push_back({key.pointer, before.at(at).dump(), after.at(at).dump()});
        }
    }
    return difference;
}

Settings with_live_changes(const Settings& running, const Settings& wanted) {
    json result = to_json(running);
    const json changed = to_json(wanted);
    for (const ConfigurationKey& key : configuration_keys()) {
        if (key.is_live) {
            const json::json_pointer at(key.pointer);
            result[at] = changed.at(at);
        }
    }
    return from_json(result);
}

std::string to_json_text(const Settings& settings) {
    return to_json(settings).dump(2);
}

}  // namespace perceptd
