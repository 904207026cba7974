// Small files for the tests of the recording readers.
// Owns one temporary folder per test case and removes it.
// Never writes elsewhere.
#pragma once

#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace perceptd::replay::test {

class TemporaryFolder {
public:
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "perceptd-replay-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error("mkdtemp failed: " + name);
        }
        path_ = name;
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    std::filesystem::path write(const std::string& name, const std::string& bytes) const {
        const auto path = path_ / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path, std::ios::binary) << bytes;
        return path;
    }
    const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

/// A PCM WAV file; `samples` are interleaved.
inline std::string wav_bytes(std::uint32_t rate_hz, std::uint16_t channel_count,
                             const std::vector<std::int16_t>& samples) {
    const auto number = [](std::uint32_t value, int byte_count) {
        std::string bytes;
        for (int i = 0; i < byte_count; ++i) {
            bytes.push_back(char(value >> (8 * i)));
        }
        return bytes;
    };
    const auto data_bytes = std::uint32_t(samples.size() * 2);
    std::string wav = "RIFF" + number(36 + data_bytes, 4) + "WAVEfmt " + number(16, 4) + number(1, 2) +
                      number(channel_count, 2) + number(rate_hz, 4) + number(rate_hz * channel_count * 2u, 4) +
                      number(channel_count * 2u, 2) + number(16, 2) + "data" + number(data_bytes, 4);
    for (const std::int16_t sample : samples) {
        wav += number(std::uint16_t(sample), 2);
    }
    return wav;
}

}  // namespace perceptd::replay::test
