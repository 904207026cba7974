#include "euroc_folder.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "csv_table.hpp"
#include "grey_image.hpp"
#include "media_track.hpp"
#include "merged_recording.hpp"

namespace perceptd::replay {
namespace {

namespace filesystem = std::filesystem;

class EurocCamera {
public:
    explicit EurocCamera(const filesystem::path& folder) : images_(folder / "data"), table_(folder / "data.csv", 2) {
        for (std::size_t row = 0; row < table_.row_count(); ++row) {
            const std::string name(table_.text(row, 1));
            if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..") {
                table_.fail(row, "'" + name + "' is not a plain file name; name an image in " + images_.string());
            }
            std::error_code error;
            if (!filesystem::is_regular_file(images_ / name, error)) {
                table_.fail(row, "the image " + (images_ / name).string() + " is missing; copy it or remove the row");
            }
        }
        const GreyImage first = read_grey_image(images_ / table_.text(0, 1));
        width_px_ = first.width_px;
        height_px_ = first.height_px;
        format_ = {first.width_px & ~1u, first.height_px & ~1u, table_.rate_hz()};
    }

    const CameraFormat& format() const noexcept { return format_; }
    std::optional<std::int64_t> head_ns() const noexcept {
        return row_ < table_.row_count() ? std::optional(table_.time_ns(row_)) : std::nullopt;
    }

    Frame take() {
        const std::size_t row = row_++;
        current_ = read_grey_image(images_ / table_.text(row, 1));
        if (current_.width_px != width_px_ || current_.height_px != height_px_) {
            table_.fail(row, "the image has " + std::to_string(current_.width_px) + "x" +
                                 std::to_string(current_.height_px) + " pixels, the first one " +
                                 std::to_string(width_px_) + "x" + std::to_string(height_px_) + "; use one size");
        }
        return {table_.time_ns(row), row};
    }

    void write(std::span<std::uint8_t> into, std::size_t stride_bytes) const {
        if (into.size() < frame_bytes(format_, stride_bytes)) {
            throw std::invalid_argument("a frame needs " + std::to_string(frame_bytes(format_, stride_bytes)) +
                                        " bytes, the caller gave " + std::to_string(into.size()));
        }
        std::uint8_t* out = into.data();
        for (std::size_t row = 0; row < format_.height_px; ++row, out += stride_bytes) {
            std::memcpy(out, current_.pixels.data() + row * current_.width_px, format_.width_px);
        }
        for (std::size_t row = 0; row < format_.height_px / 2; ++row, out += stride_bytes) {
            std::memset(out, 128, format_.width_px);  // grey: no chroma
        }
    }

private:
    filesystem::path images_;
    CsvTable table_;
    CameraFormat format_;
    std::uint32_t width_px_ = 0, height_px_ = 0;
    GreyImage current_;
    std::size_t row_ = 0;
};

class EurocImu {
public:
    explicit EurocImu(const filesystem::path& folder) {
        const CsvTable table(folder / "data.csv", 7);
        format_.rate_hz = table.rate_hz();
        rows_.resize(table.row_count());
        for (std::size_t row = 0; row < rows_.size(); ++row) {
            ImuRow& out = rows_[row];
            out.time_ns = table.time_ns(row);
            for (std::size_t axis = 0; axis < 3; ++axis) {
                out.gyro_radps[axis] = table.number(row, 1 + axis);
                out.accel_mps2[axis] = table.number(row, 4 + axis);
            }
            out.has_accel = out.has_gyro = true;
        }
    }

    const ImuFormat& format() const noexcept { return format_; }
    std::optional<std::int64_t> head_ns() const noexcept {
        return row_ < rows_.size() ? std::optional(rows_[row_].time_ns) : std::nullopt;
    }
    ImuRow take() { return rows_[row_++]; }

private:
    ImuFormat format_;
    std::vector<ImuRow> rows_;
    std::size_t row_ = 0;
};

class EurocMicrophone {
public:
    explicit EurocMicrophone(const filesystem::path& folder)
        : table_(folder / "data.csv", 2), track_(open(folder / "data.wav")) {
        for (std::size_t row = 0; row < table_.row_count(); ++row) {
            first_frames_.push_back(table_.count(row, 1));
            if (row > 0 && first_frames_[row] <= first_frames_[row - 1]) {
                table_.fail(row, "first_sample does not increase; list each anchor once in the order of time");
            }
        }
        stamp();
    }

    const AudioFormat& format() const noexcept { return track_.format(); }
    std::optional<std::int64_t> head_ns() const noexcept {
        return track_.head_ns() ? std::optional(head_ns_) : std::nullopt;
    }

    AudioBlock take() {
        AudioBlock block = track_.take();
        block.time_ns = head_ns_;
        stamp();
        return block;
    }

private:
    static PacketReader open(const filesystem::path& path) {
        auto reader = PacketReader::open(path, PacketReader::Kind::Audio);
        if (!reader) {
            throw RecordingError(path.string() + ": holds no sound; mic0 needs a WAV file");
        }
        return std::move(*reader);
    }

    /// The head block's time by the last anchor at or before it; before the first anchor, by the first.
    void stamp() {
        if (!track_.head_ns()) {
            return;
        }
        const auto frame = std::int64_t(track_.head_first_frame());
        const auto after = std::upper_bound(first_frames_.begin(), first_frames_.end(), frame);
        const std::size_t row = after == first_frames_.begin() ? 0 : std::size_t(after - first_frames_.begin()) - 1;
        const double offset_ns = double(frame - first_frames_[row]) * 1e9 / double(track_.format().rate_hz);
        head_ns_ = std::max(head_ns_, table_.time_ns(row) + std::int64_t(offset_ns));
    }

    CsvTable table_;
    AudioTrack track_;
    std::vector<std::int64_t> first_frames_;
    std::int64_t head_ns_ = std::numeric_limits<std::int64_t>::min();
};

template <typename Sensor>
std::unique_ptr<Sensor> open_if_present(const filesystem::path& folder) {
    return filesystem::exists(folder) ? std::make_unique<Sensor>(folder) : nullptr;
}

}  // namespace

std::unique_ptr<Recording> open_euroc_folder(const std::filesystem::path& given, const std::string& camera_folder) {
    const filesystem::path folder = filesystem::is_directory(given / "mav0") ? given / "mav0" : given;
    av_log_set_level(AV_LOG_FATAL);  // what matters reaches the caller as an exception
    auto camera = open_if_present<EurocCamera>(folder / camera_folder);
    auto imu = open_if_present<EurocImu>(folder / "imu0");
    auto microphone = open_if_present<EurocMicrophone>(folder / "mic0");
    if (!camera && !imu && !microphone) {
        throw RecordingError(folder.string() + ": has neither " + camera_folder +
                             ", imu0 nor mic0; give the folder that holds them (or its mav0)");
    }
    return std::make_unique<MergedRecording<EurocCamera, EurocMicrophone, EurocImu>>(
        std::move(camera), std::move(microphone), std::move(imu));
}

}  // namespace perceptd::replay
