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

namespace perceptd::replay {
namespace {

namespace filesystem = std::filesystem;

constexpr std::int64_t end_ns = std::numeric_limits<std::int64_t>::max();

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
    std::int64_t head_ns() const noexcept { return row_ < table_.row_count() ? table_.time_ns(row_) : end_ns; }

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
    std::int64_t head_ns() const noexcept { return row_ < rows_.size() ? rows_[row_].time_ns : end_ns; }
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
    std::int64_t head_ns() const noexcept { return head_ns_; }

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
            head_ns_ = end_ns;
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

class EurocFolder final : public Recording {
public:
    explicit EurocFolder(const filesystem::path& given) {
        const filesystem::path folder = filesystem::is_directory(given / "mav0") ? given / "mav0" : given;
        av_log_set_level(AV_LOG_FATAL);  // what matters reaches the caller as an exception
        open_if_present(folder / "cam0", camera_);
        open_if_present(folder / "imu0", imu_);
        open_if_present(folder / "mic0", microphone_);
        if (!camera_ && !imu_ && !microphone_) {
            throw RecordingError(folder.string() +
                                 ": has neither cam0, imu0 nor mic0; give the folder that holds them (or its mav0)");
        }
        start_ns_ = earliest_ns();
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
        const std::int64_t time_ns = earliest_ns();
        if (time_ns == end_ns) {
            return std::nullopt;
        }
        if (imu_ && imu_->head_ns() == time_ns) {
            return restamped(imu_->take());
        }
        if (microphone_ && microphone_->head_ns() == time_ns) {
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
    template <typename Sensor>
    static void open_if_present(const filesystem::path& folder, std::unique_ptr<Sensor>& sensor) {
        if (filesystem::exists(folder)) {
            sensor = std::make_unique<Sensor>(folder);
        }
    }

    std::int64_t earliest_ns() const {
        return std::min({camera_ ? camera_->head_ns() : end_ns, imu_ ? imu_->head_ns() : end_ns,
                         microphone_ ? microphone_->head_ns() : end_ns});
    }

    template <typename Kind>
    Event restamped(Kind event) const {
        event.time_ns -= start_ns_;
        return event;
    }

    std::unique_ptr<EurocCamera> camera_;
    std::unique_ptr<EurocImu> imu_;
    std::unique_ptr<EurocMicrophone> microphone_;
    std::int64_t start_ns_ = 0;
    bool has_frame_ = false;
};

}  // namespace

std::unique_ptr<Recording> open_euroc_folder(const std::filesystem::path& folder) {
    return std::make_unique<EurocFolder>(folder);
}

}  // namespace perceptd::replay
