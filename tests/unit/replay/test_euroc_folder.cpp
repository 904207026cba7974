// jpeglib.h needs these two before it.
// clang-format off
#include <cstddef>
#include <cstdio>
#include <jpeglib.h>
// clang-format on
#include <png.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "recording.hpp"
#include "replay_files.hpp"

using namespace perceptd::replay;
using namespace perceptd::replay::test;

namespace {

constexpr std::uint32_t width_px = 6, height_px = 4;

std::string png_bytes(std::uint8_t grey, std::uint32_t width = width_px) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = width;
    image.height = height_px;
    image.format = PNG_FORMAT_GRAY;
    const std::vector<std::uint8_t> pixels(width * height_px, grey);
    std::string bytes(4096, '\0');
    png_alloc_size_t size = bytes.size();
    REQUIRE(png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0, nullptr) != 0);
    return bytes.substr(0, size);
}

std::string jpeg_bytes(std::uint8_t grey) {
    jpeg_compress_struct jpeg{};
    jpeg_error_mgr errors{};
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    unsigned char* memory = nullptr;
    unsigned long size = 0;
    jpeg_mem_dest(&jpeg, &memory, &size);
    jpeg.image_width = width_px;
    jpeg.image_height = height_px;
    jpeg.input_components = 1;
    jpeg.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    std::vector<std::uint8_t> pixels(width_px, grey);
    for (std::uint32_t row = 0; row < height_px; ++row) {
        JSAMPROW line = pixels.data();
        jpeg_write_scanlines(&jpeg, &line, 1);
    }
    jpeg_finish_compress(&jpeg);
    std::string bytes(reinterpret_cast<char*>(memory), size);
    jpeg_destroy_compress(&jpeg);
    std::free(memory);
    return bytes;
}

void write_camera(const TemporaryFolder& folder, const std::string& table) {
    folder.write("cam0/data.csv", table);
    folder.write("cam0/data/a.png", png_bytes(50));
    folder.write("cam0/data/b.jpg", jpeg_bytes(200));
}

constexpr const char* camera_table = "#timestamp [ns],filename\n1000000000,a.png\n1050000000,b.jpg\n";

}  // namespace

TEST_CASE("EuRoC: the second camera plays when it is asked for, and only then") {
    const TemporaryFolder folder;
    write_camera(folder, camera_table);
    folder.write("cam1/data.csv", "#timestamp [ns],filename\n1000000000,c.png\n1050000000,c.png\n1100000000,c.png\n");
    folder.write("cam1/data/c.png", png_bytes(70));
    const auto frames_and_luma = [&](const std::string& camera) {
        const auto recording = open_recording(folder.path(), camera);
        std::pair<int, int> found{0, 0};
        while (recording->next()) {
            std::vector<std::uint8_t> pixels(8 * 6);
            recording->write_frame(pixels, 8);
            ++found.first;
            found.second = pixels[3 * 8 + 5];
        }
        return found;
    };
    CHECK(frames_and_luma("cam0").first == 2);
    CHECK(frames_and_luma("cam1") == std::pair<int, int>{3, 70});
}

TEST_CASE("EuRoC: camera, IMU and sound come out in time order") {
    const TemporaryFolder folder;
    write_camera(folder, camera_table);
    folder.write("imu0/data.csv",
                 "#timestamp [ns],w_x,w_y,w_z,a_x,a_y,a_z\n"
                 "999000000,0.1,0.2,0.3,1,2,-9.8\n1004000000,1e-3,0,0,4,5,6\n");
    folder.write("mic0/data.wav", wav_bytes(16000, 1, std::vector<std::int16_t>(8000, 3)));
    folder.write("mic0/data.csv", "#timestamp [ns],first_sample\n1010000000,0\n1260000000,4000\n");
    const auto recording = open_recording(folder.path());
    REQUIRE(recording->camera());
    CHECK(recording->camera()->rate_hz == Approx(20));
    CHECK(recording->imu()->rate_hz == Approx(200));
    CHECK(recording->audio()->rate_hz == 16000);

    std::vector<std::int64_t> frame_times_ns, imu_times_ns, audio_times_ns;
    std::vector<std::uint8_t> lumas;
    std::size_t audio_frames = 0;
    std::int64_t last_ns = 0;
    while (const auto event = recording->next()) {
        const std::int64_t time_ns = std::visit([](const auto& any) { return any.time_ns; }, *event);
        REQUIRE(time_ns >= last_ns);
        last_ns = time_ns;
        if (std::holds_alternative<Frame>(*event)) {
            std::vector<std::uint8_t> pixels(8 * 6, 1);
            recording->write_frame(pixels, 8);
            lumas.push_back(pixels[3 * 8 + 5]);
            CHECK(pixels[4 * 8] == 128);
            CHECK(pixels[5 * 8 + 5] == 128);
            CHECK(pixels[6] == 1);
            frame_times_ns.push_back(time_ns);
        } else if (const auto* row = std::get_if<ImuRow>(&*event)) {
            imu_times_ns.push_back(time_ns);
            if (imu_times_ns.size() == 1) {
                CHECK(row->gyro_radps[2] == 0.3f);
                CHECK(row->accel_mps2[2] == -9.8f);
            }
        } else {
            audio_frames += std::get<AudioBlock>(*event).original.size();
            audio_times_ns.push_back(time_ns);
        }
    }
    CHECK(frame_times_ns == std::vector<std::int64_t>{1'000'000, 51'000'000});
    CHECK(imu_times_ns == std::vector<std::int64_t>{0, 5'000'000});
    REQUIRE_FALSE(audio_times_ns.empty());
    CHECK(audio_times_ns[0] == 11'000'000);
    CHECK(audio_frames == 8000);
    REQUIRE(lumas.size() == 2);
    CHECK(lumas[0] == 50);
    CHECK(int(lumas[1]) == Approx(200).margin(2));
}

TEST_CASE("EuRoC: CRLF tables and a mav0 folder are accepted, other sensors may be missing") {
    const TemporaryFolder folder;
    folder.write("mav0/imu0/data.csv", "#timestamp [ns],w,w,w,a,a,a\r\n10,0,0,0,1,2,3\r\n20,0,0,0,1,2,3.5\r\n\r\n");
    const auto recording = open_recording(folder.path());
    CHECK_FALSE(recording->camera());
    CHECK_FALSE(recording->audio());
    REQUIRE(recording->next());
    const auto last = recording->next();
    REQUIRE(last);
    CHECK(std::get<ImuRow>(*last).accel_mps2[2] == 3.5f);
    CHECK(std::get<ImuRow>(*last).time_ns == 10);
    CHECK_FALSE(recording->next());
}

TEST_CASE("EuRoC: errors name file, line and reason") {
    const TemporaryFolder folder;
    const auto refused = [&](const std::string& reason) {
        CHECK_THROWS_WITH(open_recording(folder.path()), Catch::Contains(reason));
    };
    SECTION("missing image") {
        write_camera(folder, std::string(camera_table) + "1100000000,c.png\n");
        refused("cam0/data.csv:4: the image");
        refused("c.png is missing");
    }
    SECTION("image outside the folder") {
        write_camera(folder, "1,../data.csv\n");
        refused("data.csv:1: '../data.csv' is not a plain file name");
    }
    SECTION("unsorted times") {
        write_camera(folder, "#t,f\n20,a.png\n10,b.jpg\n");
        refused("cam0/data.csv:3: timestamp 10 is earlier than line 2");
    }
    SECTION("repeated times") {
        folder.write("imu0/data.csv", "#h\r\n10,0,0,0,1,2,3\r\n10,0,0,0,1,2,3\r\n");
        refused("imu0/data.csv:3: timestamp 10 repeats line 2");
    }
    SECTION("wrong number of fields") {
        folder.write("imu0/data.csv", "10,0,0,0,1,2\n");
        refused("imu0/data.csv:1: has 6 fields instead of 7");
    }
    SECTION("not a number") {
        folder.write("imu0/data.csv", "10,0,0,0,1,nan,3\n");
        refused("imu0/data.csv:1: field 6 is 'nan'");
    }
    SECTION("time out of range") {
        folder.write("imu0/data.csv", "99999999999999999999,0,0,0,1,2,3\n");
        refused("imu0/data.csv:1: field 1");
    }
    SECTION("header alone") {
        folder.write("imu0/data.csv", "#timestamp\n");
        refused("imu0/data.csv: has no rows");
    }
    SECTION("anchor that goes back") {
        folder.write("mic0/data.wav", wav_bytes(16000, 1, std::vector<std::int16_t>(800, 3)));
        folder.write("mic0/data.csv", "10,400\n20,0\n");
        refused("mic0/data.csv:2: first_sample does not increase");
    }
    SECTION("sound missing") {
        folder.write("mic0/data.csv", "10,0\n");
        refused("mic0/data.wav");
    }
    SECTION("no sensor at all") {
        refused("neither cam0, imu0 nor mic0");
    }
}

TEST_CASE("EuRoC: damaged images and a change of size are errors where they are played") {
    const TemporaryFolder folder;
    write_camera(folder, camera_table);
    const auto refused = [&](const std::string& name, const std::string& bytes, const std::string& reason) {
        folder.write("cam0/data/" + name, bytes);
        const auto recording = open_recording(folder.path());
        REQUIRE(recording->next());
        CHECK_THROWS_WITH(recording->next(), Catch::Contains(reason));
    };
    refused("b.jpg", jpeg_bytes(9).substr(0, 60), "damaged JPEG");
    refused("b.jpg", png_bytes(9).substr(0, 50), "damaged PNG");
    refused("b.jpg", png_bytes(9, 8), "data.csv:3: the image has 8x4 pixels");
    refused("b.jpg", "GIF89a", "neither PNG nor JPEG");
    refused("b.jpg", "", "neither PNG nor JPEG");
}
