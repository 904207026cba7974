#include "sensor/health.hpp"

namespace perceptd::sensor {

const char* name_of(Health health) noexcept {
    switch (health) {
        case Health::Off: return "off";
        case Health::Starting: return "starting";
        case Health::Streaming: return "streaming";
        case Health::Silent: return "silent";
        case Health::Failed: return "failed";
    }
    return "failed";
}

Health health_of(std::int64_t on_since_ns, bool is_live, const StreamCounters& counters, std::int64_t now_ns) noexcept {
    if (on_since_ns == 0) {
        return Health::Off;
    }
    const std::int64_t last_at_ns = counters.last_at_ns.load(std::memory_order_relaxed);
    // Counters of an earlier run may still be there for a moment: only a sample of this run counts.
    const bool is_alive =
        is_live ? last_at_ns >= on_since_ns : counters.delivered_count.load(std::memory_order_relaxed) > 0;
    if (!is_alive) {
        return now_ns - on_since_ns > kFirstSampleNs ? Health::Failed : Health::Starting;
    }
    return is_live && now_ns - last_at_ns > kSilenceNs ? Health::Silent : Health::Streaming;
}

}  // namespace perceptd::sensor
