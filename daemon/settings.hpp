// The daemon's settings: one plain struct per stage, filled from the layers of configuration files after one strict
// pass. Owns its values. Stages never include this header: daemon.cpp hands each its own struct. Never holds a value
// that the schema does not allow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.hpp"

namespace perceptd {

enum class ModelBacking : std::uint8_t { Mapped, SealedCopy };
enum class SensorSource : std::uint8_t { Off, Synthetic, Provider };
enum class MelProfileName : std::uint8_t { Kaldi, WhisperStream };

struct LogSettings {
    log::Level level = log::Level::Info;
};

struct ArenaSettings {
    std::vector<std::string> heaps{"udmabuf", "memfd"};  ///< in the order they are tried
    std::uint32_t camera_slot_count = 16;
    std::uint32_t audio_slot_count = 64;
};

struct CameraSettings {
    SensorSource source = SensorSource::Off;
    std::uint32_t width_px = 640;
    std::uint32_t height_px = 480;
    std::uint32_t rate_hz = 30;
};

struct MicrophoneSettings {
    SensorSource source = SensorSource::Off;
    std::uint32_t rate_hz = 48000;
    std::uint32_t channel_count = 1;
};

struct ImuSettings {
    SensorSource source = SensorSource::Off;
    std::uint32_t rate_hz = 200;
};

struct SensorSettings {
    CameraSettings camera;
    MicrophoneSettings microphone;
    ImuSettings imu;
};

struct WindowSettings {
    std::uint32_t deadline_ms = 20;
    std::uint32_t max_length_ms = 1000;
};

struct TokenSettings {
    MelProfileName mel_profile = MelProfileName::Kaldi;
    double patch_false_alarm = 0.001;  ///< probability per patch
};

struct ModelSettings {
    std::vector<std::string> folders{"/usr/share/perceptd/models", "/var/lib/perceptd/models"};
    ModelBacking backing = ModelBacking::Mapped;
    std::uint32_t idle_eviction_s = 600;
};

struct StoreSettings {
    std::string folder = "/var/lib/perceptd/store";
    std::uint32_t max_mib = 64;
    std::uint32_t retention_days = 90;  ///< 0: for ever
};

struct GenerationSettings {
    std::uint32_t thread_count = 0;  ///< 0: half of the processors
    std::uint32_t max_running = 4;
    std::uint32_t context_tokens = 2048;  ///< at most the model's own
};

struct SessionSettings {
    std::uint32_t max_count = 16;
    std::uint32_t max_windows_in_flight = 4;
};

struct ThreadSettings {
    std::uint32_t capture_priority = 60;  ///< SCHED_FIFO; 0 = ordinary
    std::uint32_t pipeline_priority = 50;
};

struct Settings {
    LogSettings log;
    ArenaSettings arena;
    SensorSettings sensors;
    WindowSettings windows;
    TokenSettings tokens;
    ModelSettings models;
    StoreSettings store;
    GenerationSettings generation;
    SessionSettings sessions;
    ThreadSettings threads;
};

/// Reads and checks every layer under `root` ("" is the system). Main thread; blocks on file I/O.
/// Throws Error(InvalidConfiguration): one line per problem with file, line, JSON pointer, unit and range.
Settings load_settings(const std::string& root = "");

/// One key that differs; the values are JSON.
struct SettingChange {
    std::string pointer;
    std::string before;
    std::string after;
};

struct SettingsDifference {
    std::vector<SettingChange> live;     ///< a reload applies these
    std::vector<SettingChange> restart;  ///< these wait for the next start
};

/// Which keys differ, by what it takes to apply them.
SettingsDifference compare(const Settings& running, const Settings& wanted);

/// `running` with only the live keys of `wanted`: what holds after a reload.
Settings with_live_changes(const Settings& running, const Settings& wanted);

/// The effective settings as JSON text that load_settings() accepts, for listings.
std::string to_json_text(const Settings& settings);

}  // namespace perceptd
