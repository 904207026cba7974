// Settings from layers, compared and applied.
#include "settings.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "configuration_root.hpp"
#include "configuration_schema.hpp"

using namespace perceptd;
using nlohmann::json;
using test::ConfigurationRoot;
using test::reason_of;

TEST_CASE("without any file the settings are the schema's defaults and the structs' own", "[settings]") {
    const ConfigurationRoot root;
    const std::string loaded = to_json_text(load_settings(root.path()));
    CHECK(loaded == to_json_text(Settings{}));
    json defaults = json::object();
    for (const ConfigurationKey& key : configuration_keys()) {
        defaults[json::json_pointer(key.pointer)] = key.default_value;
    }
    CHECK(json::parse(loaded) == defaults);
}

TEST_CASE("every key reaches its member", "[settings]") {
    const ConfigurationRoot root;
    root.write(ConfigurationRoot::kAdmin, R"({
        "log": {"level": "error"},
        "arena": {"heaps": ["dma_heap:system"], "camera_slot_count": 5, "audio_slot_count": 9},
        "sensors": {"camera": {"source": "synthetic", "width_px": 101, "height_px": 102, "rate_hz": 103},
                    "microphone": {"source": "synthetic", "rate_hz": 16000, "channel_count": 3},
                    "imu": {"source": "synthetic", "rate_hz": 104}},
        "windows": {"deadline_ms": 11, "max_length_ms": 12},
        "tokens": {"mel_profile": "WHISPER_STREAM", "patch_false_alarm": 0.02},
        "models": {"folders": ["/a", "/b/c"], "backing": "sealed_copy", "idle_eviction_s": 41},
        "sessions": {"max_count": 21, "max_windows_in_flight": 22},
        "threads": {"capture_priority": 31, "pipeline_priority": 32}})");
    const Settings s = load_settings(root.path());
    CHECK(s.log.level == log::Level::Error);
    CHECK(s.arena.heaps == std::vector<std::string>{"dma_heap:system"});
    CHECK(s.arena.camera_slot_count == 5);
    CHECK(s.arena.audio_slot_count == 9);
    CHECK(s.sensors.camera.source == SensorSource::Synthetic);
    CHECK(s.sensors.camera.width_px == 101);
    CHECK(s.sensors.camera.height_px == 102);
    CHECK(s.sensors.camera.rate_hz == 103);
    CHECK(s.sensors.microphone.source == SensorSource::Synthetic);
    CHECK(s.sensors.microphone.rate_hz == 16000);
    CHECK(s.sensors.microphone.channel_count == 3);
    CHECK(s.sensors.imu.source == SensorSource::Synthetic);
    CHECK(s.sensors.imu.rate_hz == 104);
    CHECK(s.windows.deadline_ms == 11);
    CHECK(s.windows.max_length_ms == 12);
    CHECK(s.tokens.mel_profile == MelProfileName::WhisperStream);
    CHECK(s.tokens.patch_false_alarm == 0.02);
    CHECK(s.models.folders == std::vector<std::string>{"/a", "/b/c"});
    CHECK(s.models.backing == ModelBacking::SealedCopy);
    CHECK(s.models.idle_eviction_s == 41);
    CHECK(s.sessions.max_count == 21);
    CHECK(s.sessions.max_windows_in_flight == 22);
    CHECK(s.threads.capture_priority == 31);
    CHECK(s.threads.pipeline_priority == 32);
}

TEST_CASE("later layers win and null gives the default back", "[settings]") {
    const ConfigurationRoot root;
    root.write(ConfigurationRoot::kVendor,
               R"({"sensors": {"camera": {"rate_hz": 60, "width_px": 320}}, "windows": {"deadline_ms": 5}})");
    root.write(ConfigurationRoot::kAdmin, R"({"sensors": {"camera": {"rate_hz": 24}}})");
    CHECK(load_settings(root.path()).sensors.camera.rate_hz == 24);
    CHECK(load_settings(root.path()).sensors.camera.width_px == 320);
    root.write("etc/perceptd/conf.d/50.json", R"({"sensors": {"camera": {"rate_hz": null}}})");
    CHECK(load_settings(root.path()).sensors.camera.rate_hz == 30);
    root.write("etc/perceptd/conf.d/60.json", R"({"sensors": null})");
    CHECK(load_settings(root.path()).sensors.camera.width_px == 640);
    CHECK(load_settings(root.path()).windows.deadline_ms == 5);
    root.write("etc/perceptd/conf.d/70.json", R"({"sensors": {"camera": {"width_px": 160}}})");
    CHECK(load_settings(root.path()).sensors.camera.width_px == 160);
    CHECK(load_settings(root.path()).sensors.camera.rate_hz == 30);
}

TEST_CASE("errors carry the code and the layer that is wrong", "[settings]") {
    const ConfigurationRoot root;
    root.write(ConfigurationRoot::kVendor, R"({"windows": {"deadline_ms": 5}})");
    root.write("etc/perceptd/conf.d/50.json", "{\n  \"windows\": { \"deadline_ms\": 0 },\n  \"logs\": {}\n}");
    const std::string file = root.path() + "/etc/perceptd/conf.d/50.json";
    try {
        (void)load_settings(root.path());
        FAIL("nothing was thrown");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::InvalidConfiguration);
        CHECK(error.what() == file + ":3: /logs: unknown key; nearest known key: /log (an object)\n" + file +
                                  ":2: /windows/deadline_ms: 0 is out of range; expected an integer, 1 .. 1000 ms");
    }
}

TEST_CASE("a difference says what is live and what needs a restart", "[settings]") {
    Settings running;
    Settings wanted;
    CHECK(compare(running, wanted).live.empty());
    CHECK(compare(running, wanted).restart.empty());
    wanted.windows.deadline_ms = 40;
    wanted.log.level = log::Level::Debug;
    wanted.sensors.camera.rate_hz = 60;
    wanted.arena.heaps = {"memfd"};
    const SettingsDifference difference = compare(running, wanted);
    REQUIRE(difference.live.size() == 2);
    CHECK(difference.live[0].pointer == "/log/level");
    CHECK(difference.live[0].before == "\"info\"");
    CHECK(difference.live[0].after == "\"debug\"");
    CHECK(difference.live[1].pointer == "/windows/deadline_ms");
    REQUIRE(difference.restart.size() == 2);
    CHECK(difference.restart[0].pointer == "/arena/heaps");
    CHECK(difference.restart[1].pointer == "/sensors/camera/rate_hz");

    const Settings applied = with_live_changes(running, wanted);
    CHECK(applied.windows.deadline_ms == 40);
    CHECK(applied.log.level == log::Level::Debug);
    CHECK(applied.sensors.camera.rate_hz == 30);
    CHECK(compare(applied, wanted).live.empty());
    CHECK(compare(applied, wanted).restart.size() == 2);
}

TEST_CASE("printed settings load again unchanged", "[settings]") {
    const ConfigurationRoot root;
    Settings settings;
    settings.tokens.patch_false_alarm = 0.0123;
    settings.sensors.imu.source = SensorSource::Synthetic;
    root.write(ConfigurationRoot::kAdmin, to_json_text(settings));
    CHECK(to_json_text(load_settings(root.path())) == to_json_text(settings));
}
