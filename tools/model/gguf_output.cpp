// Plain writes; the rename at the end makes a half-written model impossible to see.
#include "gguf_output.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/contract.hpp"
#include "base/error.hpp"

namespace perceptd::model_tool {

namespace {

std::string folder_of(const std::string& path) {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    return folder.empty() ? "." : folder.string();
}

void check_room(int fd, std::uint64_t wanted_bytes, const std::string& path) {
    struct statvfs status {};
    if (::fstatvfs(fd, &status) != 0) {
        throw_errno("statvfs", path);
    }
    const std::uint64_t free_bytes = std::uint64_t{status.f_bavail} * status.f_frsize;
    if (wanted_bytes > free_bytes) {
        Error error(ErrorCode::QuotaExceeded, path + ": would take " + std::to_string(wanted_bytes) + " bytes, " +
                                                  std::to_string(free_bytes) +
                                                  " are free; choose a smaller shape or another disk");
        error.limit = free_bytes;
        error.used = wanted_bytes;
        throw error;
    }
}

}  // namespace

GgufOutput::GgufOutput(std::string path, const model::GgufWriter& header)
    : path_(std::move(path)),
      fd_(::open(folder_of(path_).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0644)),
      expected_bytes_(header.file_bytes()) {
    if (!fd_) {
        throw_errno("create a file in", folder_of(path_));
    }
    check_room(fd_.borrow(), expected_bytes_, path_);
    write(header.header());
    tensor_bytes_ = 0;
}

void GgufOutput::write(std::span<const std::byte> bytes) {
    written_bytes_ += bytes.size();
    tensor_bytes_ += bytes.size();
    while (!bytes.empty()) {
        const ssize_t count = ::write(fd_.borrow(), bytes.data(), bytes.size());
        if (count < 0 && errno != EINTR) {
            throw_errno("write", path_);
        }
        bytes = bytes.subspan(count < 0 ? 0 : static_cast<std::size_t>(count));
    }
}

void GgufOutput::end_tensor() {
    constexpr std::array<std::byte, model::GgufWriter::kAlignmentBytes> kZeros{};
    write(std::span(kZeros).first(model::GgufWriter::padding_after(tensor_bytes_)));
    tensor_bytes_ = 0;
}

void GgufOutput::commit() {
    PERCEPTD_ASSERT(written_bytes_ == expected_bytes_);
    if (::fsync(fd_.borrow()) != 0) {
        throw_errno("fsync", path_);
    }
    // A name of its own first: linking over an existing file is refused, renaming over it is not.
    const std::string named = path_ + ".part-" + std::to_string(::getpid());
    const std::string open_file = "/proc/self/fd/" + std::to_string(fd_.borrow());
    if (::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, named.c_str(), AT_SYMLINK_FOLLOW) != 0) {
        throw_errno("link", named);
    }
    if (std::rename(named.c_str(), path_.c_str()) != 0) {
        const int code = errno;
        ::unlink(named.c_str());
        errno = code;
        throw_errno("rename", path_);
    }
}

}  // namespace perceptd::model_tool
