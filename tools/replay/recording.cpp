#include "recording.hpp"

#include <system_error>

#include "euroc_folder.hpp"
#include "media_file.hpp"

namespace perceptd::replay {

std::unique_ptr<Recording> open_recording(const std::filesystem::path& path, const std::string& camera) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) {
        throw RecordingError(path.string() + ": " + (error ? error.message() : "no such file or folder") +
                             "; give the path of a media file or an EuRoC folder");
    }
    if (std::filesystem::is_directory(status)) {
        return open_euroc_folder(path, camera);
    }
    if (!std::filesystem::is_regular_file(status)) {
        throw RecordingError(path.string() + ": not a regular file; give a media file or an EuRoC folder");
    }
    return open_media_file(path);
}

std::size_t frame_bytes(const CameraFormat& format, std::size_t stride_bytes) {
    if (stride_bytes < format.width_px) {
        throw std::invalid_argument("stride of " + std::to_string(stride_bytes) +
                                    " bytes is below the frame width of " + std::to_string(format.width_px));
    }
    return stride_bytes * (format.height_px + format.height_px / 2);
}

}  // namespace perceptd::replay
