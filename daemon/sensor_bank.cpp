#include "sensor_bank.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/log.hpp"
#include "sensor/synthetic.hpp"
#include "tokens/packer.hpp"

namespace perceptd {
namespace {

using sensor::Kind;
using session::BlockKind;
using session::SensorSet;

constexpr std::uint64_t kProviderBytesMax = std::uint64_t{512} << 20;  // camera slots of one provider

std::size_t slices_per_window(const Settings& settings) {
    return 2 * settings.windows.max_length_ms / 10 + 16;  // the first window also has its lead
}

session::ProvidedSlots slots_of(const arena::Arena& arena) {
    return {arena.provider_fd(), arena.slot_count(), arena.slot_stride_bytes(), arena.slot_bytes()};
}

}  // namespace

SensorSet kinds_of(const sensor::Offer& offer) noexcept {
    SensorSet kinds;
    if (offer.camera) {
        kinds.add(Kind::Camera);
    }
    if (offer.audio) {
        kinds.add(Kind::Microphone);
    }
    if (offer.imu) {
        kinds.add(Kind::Imu);
    }
    return kinds;
}

SensorBank::SensorBank(const Settings& settings, std::string device_root)
    : settings_(settings), device_root_(std::move(device_root)) {
    make_synthetic();
    if (synthetic_) {
        auto memory = make_memory(synthetic_->offer(), arena::Writer::Daemon);
        for (const Kind kind : sensor::kKinds) {
            if (kinds_of(synthetic_->offer()).has(kind)) {
                install(kind, synthetic_.get(), std::move(memory[sensor::index_of(kind)]));
            }
        }
    }
}

void SensorBank::make_synthetic() {
    const SensorSettings& sensors = settings_.sensors;
    sensor::SyntheticOptions synthetic;
    synthetic.fifo_priority = static_cast<int>(settings_.threads.capture_priority);
    synthetic.camera.reset();
    synthetic.microphone.reset();
    synthetic.imu.reset();
    if (sensors.camera.source == SensorSource::Synthetic) {
        synthetic.camera = {.width_px = sensors.camera.width_px,
                            .height_px = sensors.camera.height_px,
                            .rate_hz = static_cast<double>(sensors.camera.rate_hz)};
    }
    if (sensors.microphone.source == SensorSource::Synthetic) {
        synthetic.microphone = {.rate_hz = sensors.microphone.rate_hz,
                                .channel_count = sensors.microphone.channel_count};
    }
    if (sensors.imu.source == SensorSource::Synthetic) {
        synthetic.imu = {.rate_hz = static_cast<double>(sensors.imu.rate_hz)};
    }
    if (synthetic.camera || synthetic.microphone || synthetic.imu) {
        synthetic_ = std::make_unique<sensor::SyntheticSource>(synthetic);
    }
}

std::array<SensorBank::Memory, sensor::kKindCount> SensorBank::make_memory(const sensor::Offer& offer,
                                                                           arena::Writer writer) {
    const auto choose = [this](arena::Writer by) {
        arena::HeapChoice choice = arena::choose_heap(settings_.arena.heaps, by, device_root_);
        for (const std::string& reason : choice.rejected) {
            log::write(log::Message::HeapFallback, log::Level::Info, "arena", "heap passed over: " + reason);
        }
        return std::move(choice.heap);
    };
    const auto token_heap = choose(arena::Writer::Daemon);
    const auto provider_heap = writer == arena::Writer::Daemon ? nullptr : choose(writer);
    const arena::Heap& sample_heap = provider_heap ? *provider_heap : *token_heap;
    const auto make = [](const arena::Heap& heap, const char* label, std::uint32_t slot_count, std::size_t slot_bytes,
                         arena::Writer by) {
        auto arena = std::make_unique<arena::Arena>(heap, arena::Arena::Options{label, slot_count, slot_bytes, by});
        if (by == arena::Writer::Daemon) {
            arena->seal();  // a provider's is sealed once it is mapped
        }
        return arena;
    };
    const std::uint32_t camera_slots = settings_.arena.camera_slot_count;
    const std::uint32_t token_slots = camera_slots * 2;
    const auto make_tokens = [&](const char* label, std::size_t slot_bytes) {
        return make(*token_heap, label, token_slots, slot_bytes, arena::Writer::Daemon);
    };
    std::array<Memory, sensor::kKindCount> memory;
    if (const auto& camera = offer.camera) {
        const auto side = [](std::uint32_t px) { return (px + tokens::kPatchPx - 1) / tokens::kPatchPx; };
        const std::size_t patches = std::size_t{side(camera->width_px)} * side(camera->height_px);
        memory[sensor::index_of(Kind::Camera)] = {
            make(sample_heap, "camera", camera_slots, sensor::camera_slot_bytes(*camera), writer),
            make_tokens("patches", tokens::patch_block_bytes(patches))};
    }
    if (const auto& audio = offer.audio) {
        memory[sensor::index_of(Kind::Microphone)] = {
            make(sample_heap, "audio", settings_.arena.audio_slot_count, sensor::audio_slot_bytes(*audio), writer),
            make_tokens("mel", tokens::mel_block_bytes(slices_per_window(settings_)))};
    }
    if (const auto& imu = offer.imu) {
        const auto rows = static_cast<std::size_t>(imu->rate_hz * 2 * settings_.windows.max_length_ms / 1000) + 64;
        memory[sensor::index_of(Kind::Imu)] = {
            nullptr, make_tokens("motion", tokens::motion_block_bytes(rows, slices_per_window(settings_)))};
    }
    log::info("arena", "buffers come from " + sample_heap.name() + ", for " + offer.origin);
    return memory;
}

void SensorBank::install(Kind kind, sensor::Source* source, Memory memory) {
    Sensor& sensor = sensors_[sensor::index_of(kind)];
    sensor.source = source;
    sensor.memory = std::move(memory);
    sensor.samples_id = next_arena_id_++;
    sensor.tokens_id = next_arena_id_++;
}

SensorSource SensorBank::configured(Kind kind) const noexcept {
    switch (kind) {
        case Kind::Camera: return settings_.sensors.camera.source;
        case Kind::Microphone: return settings_.sensors.microphone.source;
        case Kind::Imu: return settings_.sensors.imu.source;
    }
    return SensorSource::Off;
}

std::string SensorBank::absence_of(Kind kind) const {
    const std::string word = word_of(kind);
    if (configured(kind) == SensorSource::Provider) {
        return "no provider serves the " + word + " now; start one, such as perceptd-replay, and subscribe again";
    }
    return "no " + word + " is configured; set /sensors/" + word + "/source, see perceptd --print-config";
}

void SensorBank::offer(Kind kind, session::StreamOffer& to) const {
    const Sensor& sensor = at(kind);
    const auto add = [&](std::uint32_t id, BlockKind block, const std::unique_ptr<arena::Arena>& arena) {
        to.arenas.push_back({id, block, arena.get()});
    };
    switch (kind) {
        case Kind::Camera:
            to.camera = sensor.source->offer().camera;
            add(sensor.samples_id, BlockKind::Frame, sensor.memory.samples);
            add(sensor.tokens_id, BlockKind::Patch, sensor.memory.tokens);
            return;
        case Kind::Microphone:
            to.audio = sensor.source->offer().audio;
            add(sensor.samples_id, BlockKind::Audio, sensor.memory.samples);
            add(sensor.tokens_id, BlockKind::Mel, sensor.memory.tokens);
            return;
        case Kind::Imu:
            to.imu = sensor.source->offer().imu;
            add(sensor.tokens_id, BlockKind::Motion, sensor.memory.tokens);
            return;
    }
}

std::vector<sensor::Source*> SensorBank::sources_of(SensorSet kinds) const {
    std::vector<sensor::Source*> sources;
    for (const Kind kind : sensor::kKinds) {
        sensor::Source* const source = kinds.has(kind) ? at(kind).source : nullptr;
        if (source != nullptr && std::find(sources.begin(), sources.end(), source) == sources.end()) {
            sources.push_back(source);
        }
    }
    return sources;
}

StreamArenas SensorBank::arenas_of(SensorSet kinds) const noexcept {
    StreamArenas arenas;
    if (kinds.has(Kind::Camera)) {
        arenas.camera = at(Kind::Camera).memory.samples.get();
        arenas.patches = at(Kind::Camera).memory.tokens.get();
    }
    if (kinds.has(Kind::Microphone)) {
        arenas.audio = at(Kind::Microphone).memory.samples.get();
        arenas.mel = at(Kind::Microphone).memory.tokens.get();
    }
    if (kinds.has(Kind::Imu)) {
        arenas.motion = at(Kind::Imu).memory.tokens.get();
    }
    return arenas;
}

std::uint32_t SensorBank::arena_id(BlockKind kind) const noexcept {
    const Sensor& sensor = at(session::sensor_of(kind));
    return kind == BlockKind::Frame || kind == BlockKind::Audio ? sensor.samples_id : sensor.tokens_id;
}

std::uint64_t SensorBank::invalid_samples_count() const noexcept {
    std::uint64_t count = 0;
    for (const Kind kind : sensor::kKinds) {
        count += has(kind) ? at(kind).source->counters(kind).invalid_count.load(std::memory_order_relaxed) : 0;
    }
    return count;
}

void SensorBank::check_room(const sensor::Offer& offer, SensorSet kinds) const {
    for (const Kind kind : sensor::kKinds) {
        if (!kinds.has(kind)) {
            continue;
        }
        const std::string word = word_of(kind);
        if (configured(kind) != SensorSource::Provider) {
            throw Error(ErrorCode::SensorUnavailable, "the configuration leaves the " + word +
                                                          " to no provider; set /sensors/" + word +
                                                          "/source to \"provider\" or do not offer it");
        }
        for (const auto& [id, provider] : providers_) {
            if (provider.kinds.has(kind)) {
                throw Error(ErrorCode::Busy, "another provider serves the " + word + "; stop it first");
            }
        }
    }
    if (synthetic_ && !offer.is_live) {
        throw Error(ErrorCode::InvalidArgument,
                    "a recording cannot run beside the live synthetic sensors; set every /sensors/*/source to "
                    "\"provider\" or \"off\"");
    }
    for (const auto& [id, provider] : providers_) {
        if (provider.source->offer().is_live != offer.is_live) {
            throw Error(ErrorCode::InvalidArgument, "recordings and live sensors do not mix; stop the other provider");
        }
    }
    if (offer.camera) {
        const std::uint64_t bytes =
            std::uint64_t{sensor::camera_slot_bytes(*offer.camera)} * settings_.arena.camera_slot_count;
        if (bytes > kProviderBytesMax) {
            Error error(ErrorCode::QuotaExceeded,
                        "the camera's slots would need too many bytes; scale the picture or lower "
                        "/arena/camera_slot_count");
            error.limit = kProviderBytesMax;
            error.used = bytes;
            throw error;
        }
    }
}

session::Provision SensorBank::provide(std::uint64_t session_id, const sensor::Offer& offer,
                                       sensor::FeedSource::StartHandler on_start) {
    Provider provider;
    provider.kinds = kinds_of(offer);
    check_room(offer, provider.kinds);
    sweep();
    provider.memory = make_memory(offer, arena::Writer::Provider);
    arena::Arena* const camera = provider.memory[sensor::index_of(Kind::Camera)].samples.get();
    arena::Arena* const audio = provider.memory[sensor::index_of(Kind::Microphone)].samples.get();
    provider.source = std::make_unique<sensor::FeedSource>(
        offer, camera, audio, static_cast<int>(settings_.threads.capture_priority), std::move(on_start));
    session::Provision provision;
    provision.ring_fd = provider.source->ring_fd();
    provision.ring_bytes = sizeof(percept_feed);
    provision.doorbell_fd = provider.source->take_doorbell();
    if (camera != nullptr) {
        provision.camera = slots_of(*camera);
    }
    if (audio != nullptr) {
        provision.audio = slots_of(*audio);
    }
    providers_.emplace(session_id, std::move(provider));
    return provision;
}

SensorSet SensorBank::provider_ready(std::uint64_t session_id) {
    Provider& provider = providers_.at(session_id);
    for (const Memory& memory : provider.memory) {
        if (memory.samples) {
            memory.samples->seal();
        }
    }
    provider.source->seal();
    for (const Kind kind : sensor::kKinds) {
        if (provider.kinds.has(kind)) {
            install(kind, provider.source.get(), std::move(provider.memory[sensor::index_of(kind)]));
        }
    }
    provider.is_ready = true;
    return provider.kinds;
}

sensor::FeedSource* SensorBank::provider(std::uint64_t session_id) const noexcept {
    const auto found = providers_.find(session_id);
    return found == providers_.end() ? nullptr : found->second.source.get();
}

SensorSet SensorBank::provider_kinds(std::uint64_t session_id) const noexcept {
    const auto found = providers_.find(session_id);
    return found == providers_.end() || !found->second.is_ready ? SensorSet() : found->second.kinds;
}

void SensorBank::end_provider(std::uint64_t session_id) noexcept {
    const auto found = providers_.find(session_id);
    if (found == providers_.end()) {
        return;
    }
    const bool is_ready = found->second.is_ready;
    const SensorSet kinds = found->second.kinds;
    found->second.source.reset();  // its leases end before the arenas
    for (const Kind kind : sensor::kKinds) {
        if (is_ready && kinds.has(kind)) {
            Sensor& sensor = sensors_[sensor::index_of(kind)];
            sensor.source = nullptr;
            for (auto* const arena : {&sensor.memory.samples, &sensor.memory.tokens}) {
                if (*arena) {
                    retired_.push_back(std::move(*arena));
                }
            }
        }
    }
    providers_.erase(found);
    sweep();
}

void SensorBank::sweep() noexcept {
    std::erase_if(retired_, [](const auto& arena) { return arena->free_count() == arena->slot_count(); });
}

void SensorBank::for_each_provider(
    const std::function<void(std::uint64_t session_id, sensor::FeedSource&)>& visit) const {
    for (const auto& [id, provider] : providers_) {
        visit(id, *provider.source);
    }
}

}  // namespace perceptd
