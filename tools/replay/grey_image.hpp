// Still images as 8-bit grey, from PNG or JPEG bytes.
// Owns the pixels of one image.
// Never trusts the header: sizes are limited before anything is allocated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace perceptd::replay {

struct GreyImage {
    std::uint32_t width_px = 0;
    std::uint32_t height_px = 0;
    std::vector<std::uint8_t> pixels;  ///< rows without padding
};

/// Reads a PNG or JPEG, told apart by their first bytes; colour becomes luma. Throws RecordingError.
[[nodiscard]] GreyImage read_grey_image(const std::filesystem::path& path);

}  // namespace perceptd::replay
