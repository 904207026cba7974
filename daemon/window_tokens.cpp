#include "window_tokens.hpp"

#include <algorithm>
#include <cmath>

#include "base/clock.hpp"
#include "tokens/packer.hpp"

namespace perceptd {
namespace {

using sensor::Kind;

/// Room for the rows of the longest window, of its lead and of what is on its way: three seconds.
std::size_t pending_rows(const sensor::Offer& offer) {
    constexpr double kSeconds = 3;
    return static_cast<std::size_t>(offer.imu ? offer.imu->rate_hz * kSeconds : 0) + 64;
}

}  // namespace

WindowTokens::WindowTokens(const sensor::Offer& offer, const PipelineOptions& options, PipelineCounters& counters)
    : offer_(offer),
      options_(options),
      counters_(counters),
      mel_(options.mel_profile),
      sounds_(options.arenas.audio),
      slices_(kPendingSlices),
      levels_(kPendingSlices),
      rows_(pending_rows(offer)),
      window_rows_(rows_.size()),
      features_(static_cast<std::size_t>(2 * options.longest_window_ns / tokens::kMotionStepNs) + 64) {
    if (options_.arenas.camera != nullptr) {
        const sensor::CameraFormat& format = offer_.camera.value();
        gate_.emplace(format.width_px, format.height_px, options_.patch_gate);
        patch_list_.resize(gate_->patch_total());
    }
}

bool WindowTokens::has_room() const noexcept {
    return slice_count_ + 8 < slices_.size() && level_count_ + 1 < levels_.size() && row_count_ + 2 < rows_.size();
}

void WindowTokens::add_sound(const SoundBlock& sound, sync::Aligner& aligner) noexcept {
    if (sound.first_mono != next_mono_sample_) {
        mel_.reset(sound.first_mono);
    }
    next_mono_sample_ = sound.first_mono + sound.mono.size();
    const tokens::SampleClock clock{.anchor_sample = sound.first_mono, .anchor_ns = sound.mono_ns};
    const auto push = mel_.push(sound.mono, clock, std::span(slices_).subspan(slice_count_));
    const std::size_t end = slice_count_ + push.slice_count;
    for (std::size_t i = slice_count_; i < end; ++i) {
        if (aligner.admit(Kind::Microphone, slices_[i].centre_ns) == Status::Late) {
            counters_.mel_slices_lost_count.fetch_add(1, std::memory_order_relaxed);
        } else {
            slices_[slice_count_++] = slices_[i];
        }
    }
    levels_[level_count_++] = {sound.mono_ns, tokens::level_of(sound.mono),
                               static_cast<std::uint32_t>(sound.mono.size())};
    if (!sounds_.put(sound.lease, sound.size_bytes, sound.first_ns, sound.end_ns)) {
        counters_.sound_blocks_lost_count.fetch_add(1, std::memory_order_relaxed);
    }
}

void WindowTokens::fill(const sync::WindowPlan& plan, WindowRecord& record) noexcept {
    if (plan.has_frame) {
        fill_patches(plan, record);
    }
    if (options_.arenas.mel != nullptr) {
        fill_mel(plan, record);
        record.plan.flags |= sounds_.fill(record) ? 0U : std::uint32_t{sync::kPartialAudio};
    }
    if (options_.arenas.motion != nullptr) {
        fill_motion(plan, record);
    }
}

void WindowTokens::fill_patches(const sync::WindowPlan& plan, WindowRecord& record) noexcept {
    const sensor::CameraFormat& format = *offer_.camera;
    const std::span<const std::byte> pixels = options_.arenas.camera->slot(plan.frame.slot.slot_index);
    const tokens::LumaView luma{reinterpret_cast<const std::uint8_t*>(pixels.data()), format.width_px, format.height_px,
                                format.stride_bytes};
    arena::Lease lease = options_.arenas.patches->acquire();
    if (!lease) {
        counters_.blocks_lost_count.fetch_add(1, std::memory_order_relaxed);
        gate_->force_intra();  // the client missed changes: the next list must be whole
        return;
    }
    const tokens::PatchFrame result = gate_->process(luma, patch_list_);
    counters_.gate_reference_bytes.store(gate_->reference_bytes_written(), std::memory_order_relaxed);
    if (result.status != Status::Ok) {
        return;
    }
    const auto packed = tokens::pack_patches(lease.bytes(), gate_->block_of(result, plan.id),
                                             std::span(patch_list_).first(result.patch_count));
    if (packed.status == Status::Ok) {
        lease.publish();
        record.patches = {lease.detach(), static_cast<std::uint32_t>(packed.bytes)};
    }
}

tokens::AudioLevel WindowTokens::take_level(std::int64_t until_ns) noexcept {
    double energy = 0;
    std::uint64_t samples = 0;
    tokens::AudioLevel level;
    std::size_t heard = 0;
    for (; heard < level_count_ && levels_[heard].at_ns < until_ns; ++heard) {
        const SoundLevel& part = levels_[heard];
        energy += std::pow(10.0, static_cast<double>(part.level.level_dbfs) / 10) * part.sample_count;
        samples += part.sample_count;
        level.clipped_count += part.level.clipped_count;
    }
    if (samples > 0 && energy > 0) {
        level.level_dbfs =
            std::max(-200.0F, static_cast<float>(10 * std::log10(energy / static_cast<double>(samples))));
    }
    std::move(levels_.begin() + static_cast<std::ptrdiff_t>(heard),
              levels_.begin() + static_cast<std::ptrdiff_t>(level_count_), levels_.begin());
    level_count_ -= heard;
    return level;
}

void WindowTokens::fill_mel(const sync::WindowPlan& plan, WindowRecord& record) noexcept {
    std::size_t own = 0;
    while (own < slice_count_ && slices_[own].centre_ns < plan.own_to_ns) {
        ++own;
    }
    const tokens::AudioLevel level = take_level(plan.own_to_ns);
    arena::Lease lease = options_.arenas.mel->acquire();
    const auto packed =
        lease ? tokens::pack_mel(lease.bytes(), plan.id, options_.mel_profile, level, std::span(slices_).first(own))
              : tokens::PackResult{Status::Full, 0};
    if (packed.status == Status::Ok) {
        lease.publish();
        record.mel = {lease.detach(), static_cast<std::uint32_t>(packed.bytes)};
    } else {
        counters_.blocks_lost_count.fetch_add(1, std::memory_order_relaxed);
        counters_.mel_slices_lost_count.fetch_add(own, std::memory_order_relaxed);
    }
    std::move(slices_.begin() + static_cast<std::ptrdiff_t>(own),
              slices_.begin() + static_cast<std::ptrdiff_t>(slice_count_), slices_.begin());
    slice_count_ -= own;
}

void WindowTokens::fill_motion(const sync::WindowPlan& plan, WindowRecord& record) noexcept {
    // rows_ = [the previous window's last row], own rows, [the next window's first row], ...
    const std::size_t first_own = has_previous_row_ ? 1 : 0;
    std::size_t end_own = first_own;
    while (end_own < row_count_ && rows_[end_own].time_ns < plan.own_to_ns) {
        ++end_own;
    }
    const std::size_t end = std::min(end_own + 1, row_count_);
    std::copy_n(rows_.begin(), end, window_rows_.begin());
    if (has_previous_row_) {
        window_rows_[0].flags |= PERCEPT_IMU_NEIGHBOUR;
    }
    if (end > end_own) {
        window_rows_[end_own].flags |= PERCEPT_IMU_NEIGHBOUR;
    }
    const std::span<const percept_imu_row> rows(window_rows_.data(), end);
    const auto summary = motion_.extract(rows, plan.t0_ns, plan.t1_ns, features_);
    arena::Lease lease = options_.arenas.motion->acquire();
    const auto packed = lease ? tokens::pack_motion(lease.bytes(), plan.id, summary, rows,
                                                    std::span(features_).first(summary.feature_count))
                              : tokens::PackResult{Status::Full, 0};
    if (packed.status == Status::Ok) {
        lease.publish();
        record.motion = {lease.detach(), static_cast<std::uint32_t>(packed.bytes)};
    } else {
        counters_.blocks_lost_count.fetch_add(1, std::memory_order_relaxed);
        counters_.imu_rows_lost_count.fetch_add(end_own - first_own, std::memory_order_relaxed);
    }
    if (end_own > first_own || has_previous_row_) {
        // The last own row (or the old neighbour, when the window had none) stays as the next window's neighbour.
        const std::size_t keep = end_own - 1;
        std::move(rows_.begin() + static_cast<std::ptrdiff_t>(keep),
                  rows_.begin() + static_cast<std::ptrdiff_t>(row_count_), rows_.begin());
        row_count_ -= keep;
        has_previous_row_ = true;
    }
}

}  // namespace perceptd
