#include "grey_image.hpp"

// jpeglib.h needs these two before it.
// clang-format off
#include <cstddef>
#include <cstdio>
#include <jpeglib.h>
// clang-format on
#include <png.h>

#include <csetjmp>
#include <fstream>
#include <span>
#include <string>

#include "recording.hpp"

namespace perceptd::replay {
namespace {

constexpr std::uint64_t file_bytes_max = 256u << 20;
constexpr std::uint64_t pixels_max = 8192 * 8192;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& reason) {
    throw RecordingError(path.string() + ": " + reason + "; give an 8-bit grey PNG or JPEG");
}

std::vector<std::uint8_t> read_file(const std::filesystem::path& path) {
    std::error_code error;
    const auto size_bytes = std::filesystem::file_size(path, error);
    if (error) {
        fail(path, error.message());
    }
    if (size_bytes > file_bytes_max) {
        fail(path, "larger than 256 MiB");
    }
    std::vector<std::uint8_t> bytes(size_bytes);
    std::ifstream file(path, std::ios::binary);
    if (!file.read(reinterpret_cast<char*>(bytes.data()), std::streamsize(bytes.size()))) {
        fail(path, "cannot be read");
    }
    return bytes;
}

void check_size(const std::filesystem::path& path, std::uint64_t width_px, std::uint64_t height_px) {
    if (width_px < 2 || height_px < 2 || width_px * height_px > pixels_max) {
        fail(path, "has " + std::to_string(width_px) + "x" + std::to_string(height_px) +
                       " pixels, from 2x2 up to 8192x8192 fit");
    }
}

GreyImage read_png(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
    struct Png : png_image {
        Png() : png_image{} { version = PNG_IMAGE_VERSION; }
        ~Png() { png_image_free(this); }
    } png;
    if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) {
        fail(path, std::string("damaged PNG: ") + png.message);
    }
    check_size(path, png.width, png.height);
    png.format = PNG_FORMAT_GRAY;
    GreyImage image{png.width, png.height, std::vector<std::uint8_t>(PNG_IMAGE_SIZE(png))};
    const png_color black{};
    if (png_image_finish_read(&png, &black, image.pixels.data(), 0, nullptr) == 0) {
        fail(path, std::string("damaged PNG: ") + png.message);
    }
    return image;
}

/// libjpeg reports errors by longjmp, so the two steps below keep no C++ object on their stacks.
struct JpegReader {
    jpeg_decompress_struct jpeg;
    jpeg_error_mgr errors;
    std::jmp_buf escape;
    char message[JMSG_LENGTH_MAX];
};

void leave(j_common_ptr jpeg) {
    auto* reader = static_cast<JpegReader*>(jpeg->client_data);
    jpeg->err->format_message(jpeg, reader->message);
    std::longjmp(reader->escape, 1);
}

/// libjpeg fills a damaged picture with grey and only warns; a recording with such a frame is refused.
void leave_on_warning(j_common_ptr jpeg, int level) {
    if (level < 0) {
        leave(jpeg);
    }
}

bool begin_jpeg(JpegReader& reader, const std::uint8_t* bytes, std::size_t size_bytes) {
    if (setjmp(reader.escape) != 0) {
        return false;
    }
    jpeg_mem_src(&reader.jpeg, bytes, static_cast<unsigned long>(size_bytes));
    jpeg_read_header(&reader.jpeg, TRUE);
    return true;
}

bool finish_jpeg(JpegReader& reader, std::uint8_t* pixels) {
    if (setjmp(reader.escape) != 0) {
        return false;
    }
    reader.jpeg.out_color_space = JCS_GRAYSCALE;
    jpeg_start_decompress(&reader.jpeg);
    while (reader.jpeg.output_scanline < reader.jpeg.output_height) {
        JSAMPROW row = pixels + std::size_t(reader.jpeg.output_scanline) * reader.jpeg.output_width;
        jpeg_read_scanlines(&reader.jpeg, &row, 1);
    }
    jpeg_finish_decompress(&reader.jpeg);
    return true;
}

GreyImage read_jpeg(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
    struct Owner {
        JpegReader reader{};
        Owner() {
            reader.jpeg.err = jpeg_std_error(&reader.errors);
            reader.errors.error_exit = leave;
            reader.errors.emit_message = leave_on_warning;
            jpeg_create_decompress(&reader.jpeg);
            reader.jpeg.client_data = &reader;
        }
        ~Owner() { jpeg_destroy_decompress(&reader.jpeg); }
    } owner;
    JpegReader& reader = owner.reader;
    if (!begin_jpeg(reader, bytes.data(), bytes.size())) {
        fail(path, std::string("damaged JPEG: ") + reader.message);
    }
    check_size(path, reader.jpeg.image_width, reader.jpeg.image_height);
    GreyImage image{reader.jpeg.image_width, reader.jpeg.image_height, {}};
    image.pixels.resize(std::size_t(image.width_px) * image.height_px);
    if (!finish_jpeg(reader, image.pixels.data())) {
        fail(path, std::string("damaged JPEG: ") + reader.message);
    }
    return image;
}

}  // namespace

GreyImage read_grey_image(const std::filesystem::path& path) {
    const std::vector<std::uint8_t> bytes = read_file(path);
    if (bytes.size() >= 8 && png_sig_cmp(bytes.data(), 0, 8) == 0) {
        return read_png(path, bytes);
    }
    if (bytes.size() >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff) {
        return read_jpeg(path, bytes);
    }
    fail(path, "neither PNG nor JPEG");
}

}  // namespace perceptd::replay
