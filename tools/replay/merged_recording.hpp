// A recording made of up to three tracks of any format: their events in time order, from time zero.
// Owns the tracks.
// Never reads a track further than one event ahead: that is the track's business.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "recording.hpp"

namespace perceptd::replay {

/// Each track has format(), head_ns() (empty at its end) and take(); the camera also write(). Null = absent; never all.
template <typename Camera, typename Microphone, typename Imu>
class MergedRecording final : public Recording {
public:
    MergedRecording(std::unique_ptr<Camera> camera, std::unique_ptr<Microphone> microphone, std::unique_ptr<Imu> imu)
        : camera_(std::move(camera)), microphone_(std::move(microphone)), imu_(std::move(imu)) {
        start_ns_ = std::min({head_of(camera_), head_of(microphone_), head_of(imu_)});
    }

    std::optional<CameraFormat> camera() const override {
        return camera_ ? std::optional(camera_->format()) : std::nullopt;
    }
    std::optional<AudioFormat> audio() const override {
        return microphone_ ? std::optional(microphone_->format()) : std::nullopt;
    }
    std::optional<ImuFormat> imu() const override { return imu_ ? std::optional(imu_->format()) : std::nullopt; }

    std::optional<Event> next() override {
        has_frame_ = false;
        const std::int64_t time_ns = std::min({head_of(camera_), head_of(microphone_), head_of(imu_)});
        if (time_ns == end_ns) {
            return std::nullopt;
        }
        if (head_of(imu_) == time_ns) {
            return restamped(imu_->take());
        }
        if (head_of(microphone_) == time_ns) {
            return restamped(microphone_->take());
        }
        const Frame frame = camera_->take();
        has_frame_ = true;
        return restamped(frame);
    }

    void write_frame(std::span<std::uint8_t> into, std::size_t stride_bytes) override {
        if (!has_frame_) {
            throw std::logic_error("write_frame() without a frame from next()");
        }
        camera_->write(into, stride_bytes);
    }

private:
    static constexpr std::int64_t end_ns = std::numeric_limits<std::int64_t>::max();

    template <typename Track>
    static std::int64_t head_of(const std::unique_ptr<Track>& track) {
        return track ? track->head_ns().value_or(end_ns) : end_ns;
    }

    template <typename Kind>
    Event restamped(Kind event) const {
        event.time_ns -= start_ns_;
        return event;
    }

    std::unique_ptr<Camera> camera_;
    std::unique_ptr<Microphone> microphone_;
    std::unique_ptr<Imu> imu_;
    std::int64_t start_ns_ = 0;
    bool has_frame_ = false;
};

}  // namespace perceptd::replay
