// A temporary root folder that tests fill with configuration files. Owns the folder and removes it.
// Never touches the system's own configuration.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace perceptd::test {

class ConfigurationRoot {
public:
    ConfigurationRoot() {
        std::string name = (std::filesystem::temp_directory_path() / "perceptd-settings-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error("mkdtemp: " + name);
        }
        path_ = name;
    }
    ~ConfigurationRoot() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    ConfigurationRoot(const ConfigurationRoot&) = delete;
    ConfigurationRoot& operator=(const ConfigurationRoot&) = delete;

    /// Writes `text` to <root>/<name>, with its folders.
    void write(const std::string& name, const std::string& text) const {
        const std::filesystem::path file = std::filesystem::path(path_) / name;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file, std::ios::binary) << text;
    }
    [[nodiscard]] const std::string& path() const { return path_; }

    static constexpr const char* kVendor = "usr/share/perceptd/perceptd.json";
    static constexpr const char* kAdmin = "etc/perceptd/perceptd.json";

private:
    std::string path_;
};

/// The text of what `call` throws; fails the test when it throws nothing.
template <typename ErrorType, typename Call>
std::string reason_of(Call&& call) {
    try {
        call();
    } catch (const ErrorType& error) {
        return error.what();
    }
    throw std::logic_error("nothing was thrown");
}

}  // namespace perceptd::test
