// The sensors that exist now and the memory they fill: the built-in source, and what provider processes bring.
// Owns the sources and all arenas, those of gone providers included until clients have let go of their slots.
// Never starts a source: the pipeline does.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "arena/arena.hpp"
#include "pipeline.hpp"
#include "sensor/feed.hpp"
#include "session/feed.hpp"
#include "settings.hpp"

namespace perceptd {

/// Thread-bound (main thread). Whoever holds leases or pointers to its arenas ends before it.
class SensorBank {
public:
    /// Builds what the configuration names. Throws Error, std::system_error.
    SensorBank(const Settings& settings, std::string device_root);

    [[nodiscard]] bool has(sensor::Kind kind) const noexcept { return at(kind).source != nullptr; }
    [[nodiscard]] sensor::Source* source(sensor::Kind kind) const noexcept { return at(kind).source; }
    /// What the configuration says about a kind that does not exist: what to do about it.
    [[nodiscard]] std::string absence_of(sensor::Kind kind) const;
    /// Adds the format and arenas of `kind`.
    void offer(sensor::Kind kind, session::StreamOffer& to) const;
    /// The sources of `kinds`, each once.
    [[nodiscard]] std::vector<sensor::Source*> sources_of(session::SensorSet kinds) const;
    [[nodiscard]] StreamArenas arenas_of(session::SensorSet kinds) const noexcept;
    [[nodiscard]] std::uint32_t arena_id(session::BlockKind kind) const noexcept;
    [[nodiscard]] std::uint64_t invalid_samples_count() const noexcept;

    /// Makes room for a provider. Throws Error: not configured, busy, too large, or unfit to go with what runs.
    session::Provision provide(std::uint64_t session_id, const sensor::Offer& offer,
                               sensor::FeedSource::StartHandler on_start);
    /// Seals the memory; the kinds exist from now on. Throws std::system_error.
    session::SensorSet provider_ready(std::uint64_t session_id);
    /// The provider's source and kinds, whether ready or not; null when there is none.
    [[nodiscard]] sensor::FeedSource* provider(std::uint64_t session_id) const noexcept;
    [[nodiscard]] session::SensorSet provider_kinds(std::uint64_t session_id) const noexcept;
    /// Takes its sensors away; nothing runs on them any more.
    void end_provider(std::uint64_t session_id) noexcept;
    /// Frees the memory of gone providers that no client reads any more.
    void sweep() noexcept;
    void for_each_provider(const std::function<void(std::uint64_t session_id, sensor::FeedSource&)>& visit) const;

private:
    struct Memory {
        std::unique_ptr<arena::Arena> samples;  ///< frames or sound; none for the IMU
        std::unique_ptr<arena::Arena> tokens;
    };
    struct Sensor {
        sensor::Source* source = nullptr;
        Memory memory;
        std::uint32_t samples_id = 0;
        std::uint32_t tokens_id = 0;
    };
    struct Provider {
        std::array<Memory, sensor::kKindCount> memory;  ///< until it is ready
        std::unique_ptr<sensor::FeedSource> source;     ///< after `memory`: its leases end first
        session::SensorSet kinds;
        bool is_ready = false;
    };

    [[nodiscard]] const Sensor& at(sensor::Kind kind) const noexcept { return sensors_[sensor::index_of(kind)]; }
    [[nodiscard]] SensorSource configured(sensor::Kind kind) const noexcept;
    void make_synthetic();
    [[nodiscard]] std::array<Memory, sensor::kKindCount> make_memory(const sensor::Offer& offer, arena::Writer writer);
    void install(sensor::Kind kind, sensor::Source* source, Memory memory);
    void check_room(const sensor::Offer& offer, session::SensorSet kinds) const;

    const Settings settings_;
    const std::string device_root_;
    std::vector<std::unique_ptr<arena::Arena>> retired_;
    std::array<Sensor, sensor::kKindCount> sensors_;
    std::unique_ptr<sensor::Source> synthetic_;
    std::map<std::uint64_t, Provider> providers_;
    std::uint32_t next_arena_id_ = 1;
};

/// The kinds of an offer.
session::SensorSet kinds_of(const sensor::Offer& offer) noexcept;

}  // namespace perceptd
