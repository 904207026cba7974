// Any bytes as the tables of an EuRoC folder: first as a table of three columns, then as the IMU of a recording.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "csv_table.hpp"
#include "euroc_folder.hpp"

namespace {

using namespace perceptd::replay;

/// A folder in memory-backed storage that goes with the process.
const std::filesystem::path& folder() {
    static const struct Folder {
        Folder() : path(std::filesystem::path("/dev/shm") / ("fuzz_csv." + std::to_string(::getpid()))) {
            std::filesystem::create_directories(path / "imu0");
        }
        ~Folder() { std::filesystem::remove_all(path); }
        std::filesystem::path path;
    } made;
    return made.path;
}

void write_table(const std::uint8_t* data, std::size_t size) {
    const int fd = ::open((folder() / "imu0/data.csv").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ::write(fd, data, size) != static_cast<ssize_t>(size)) {
        std::abort();
    }
    ::close(fd);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    write_table(data, size);
    try {
        const CsvTable table(folder() / "imu0/data.csv", 3);
        for (std::size_t row = 0; row < table.row_count(); ++row) {
            static_cast<void>(table.number(row, 1));
            static_cast<void>(table.count(row, 2));
        }
    } catch (const RecordingError&) {
    }
    try {
        const auto recording = open_euroc_folder(folder(), "cam0");
        std::int64_t last_ns = 0;
        while (const auto event = recording->next()) {
            const std::int64_t time_ns = std::get<ImuRow>(*event).time_ns;
            if (time_ns < last_ns) {
                std::abort();
            }
            last_ns = time_ns;
        }
    } catch (const RecordingError&) {
    }
    return 0;
}
