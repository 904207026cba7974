// A recording as a stream of sensor events in time order: what a reader of any file format offers.
// Owns the format descriptions and the event types; readers own their files and buffers.
// Never paces, restamps or drops events: playing in real time is the caller's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>

namespace perceptd::replay {

inline constexpr std::uint32_t mono_rate_hz = 16000;

/// A recording that cannot be used. The text says file, reason and what to do.
class RecordingError : public std::runtime_error {
public:
    explicit RecordingError(const std::string& text) : std::runtime_error(text) {}
};

/// NV12 frames. Width and height are even (an odd last column or row of the file is cut off).
struct CameraFormat {
    std::uint32_t width_px = 0;
    std::uint32_t height_px = 0;
    double rate_hz = 0;  ///< mean rate; 0 = unknown
};

struct AudioFormat {
    std::uint32_t rate_hz = 0;  ///< of the original
    std::uint32_t channel_count = 0;
};

struct ImuFormat {
    double rate_hz = 0;  ///< 0 = unknown
};

/// A camera frame. Its pixels are fetched with Recording::write_frame before the next call of next().
struct Frame {
    std::int64_t time_ns = 0;
    std::uint64_t index = 0;
};

/// One block of sound, both signals. The spans are valid until the next call of next().
/// The resampler holds back a few samples, so the two signals of one block need not cover the same instants;
/// sample i of either signal lies at i / rate after the first block's time.
struct AudioBlock {
    std::int64_t time_ns = 0;  ///< of the first original frame
    std::uint64_t first_frame = 0;
    std::uint64_t first_mono = 0;
    std::span<const std::int16_t> original;  ///< interleaved
    std::span<const std::int16_t> mono;      ///< 16 kHz
};

/// One inertial sample, axes X, Y, Z. A part that the recording lacks is zero and its flag is false.
struct ImuRow {
    std::int64_t time_ns = 0;
    float accel_mps2[3] = {};
    float gyro_radps[3] = {};
    bool has_accel = false;
    bool has_gyro = false;
};

using Event = std::variant<Frame, AudioBlock, ImuRow>;

/// One open recording. Thread-bound. Any of the three formats may be missing, never all.
class Recording {
public:
    virtual ~Recording() = default;

    [[nodiscard]] virtual std::optional<CameraFormat> camera() const = 0;
    [[nodiscard]] virtual std::optional<AudioFormat> audio() const = 0;
    [[nodiscard]] virtual std::optional<ImuFormat> imu() const = 0;

    /// The next event; time_ns counts from the recording's start and never decreases. Empty = the end.
    /// Throws RecordingError where the file is damaged; the events before that point have been delivered.
    [[nodiscard]] virtual std::optional<Event> next() = 0;

    /// Writes the frame that next() just returned: luma rows, then interleaved chroma rows, both with stride_bytes.
    /// Throws std::invalid_argument if the span or stride is too small, std::logic_error if there is no frame.
    virtual void write_frame(std::span<std::uint8_t> into, std::size_t stride_bytes) = 0;
};

/// Opens a media file or, for a folder, an EuRoC/ASL recording. Throws RecordingError.
/// `camera` names the one to play of an EuRoC folder's cameras; a media file has one.
[[nodiscard]] std::unique_ptr<Recording> open_recording(const std::filesystem::path& path,
                                                        const std::string& camera = "cam0");

/// Bytes that write_frame needs. Throws std::invalid_argument for a stride below the width.
[[nodiscard]] std::size_t frame_bytes(const CameraFormat& format, std::size_t stride_bytes);

}  // namespace perceptd::replay
