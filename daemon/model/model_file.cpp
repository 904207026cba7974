// Opening, copying into a sealed memfd, mapping.
#include "model/model_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/error.hpp"

namespace perceptd::model {
namespace {

struct stat status_of(int fd, const std::string& label) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) {
        throw_errno("fstat", label);
    }
    return status;
}

void write_all(int fd, std::span<const std::byte> bytes, const std::string& label) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(fd, bytes.data(), bytes.size());
        if (written < 0 && errno != EINTR) {
            throw_errno("copying into memory", label);
        }
        bytes = bytes.subspan(written < 0 ? 0 : static_cast<std::size_t>(written));
    }
}

/// A read-only descriptor of a copy that can no longer change.
UniqueFd sealed_copy(int from, const std::string& label) {
    const UniqueFd memory(::memfd_create("perceptd-model", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!memory) {
        throw_errno("memfd_create", label);
    }
    std::array<std::byte, 1 << 16> part{};
    for (off_t at = 0;;) {
        const ssize_t count = ::pread(from, part.data(), part.size(), at);
        if (count == 0) {
            break;
        }
        if (count < 0 && errno != EINTR) {
            throw_errno("read", label);
        }
        if (count > 0) {
            write_all(memory.borrow(), std::span(part).first(static_cast<std::size_t>(count)), label);
            at += count;
        }
    }
    if (::fcntl(memory.borrow(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
        throw_errno("fcntl(F_ADD_SEALS)", label);
    }
    // A shared mapping of a write-sealed file needs a descriptor that was never writable.
    const std::string self = "/proc/self/fd/" + std::to_string(memory.borrow());
    UniqueFd read_only(::open(self.c_str(), O_RDONLY | O_CLOEXEC));
    if (!read_only) {
        throw_errno("open", self);
    }
    return read_only;
}

}  // namespace

ModelFile ModelFile::open(const std::string& path, Backing backing) {
    // O_NONBLOCK: a FIFO must not stop the daemon before it is known to be one.
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd) {
        throw_errno("open", path);
    }
    return adopt(std::move(fd), path, backing);
}

ModelFile ModelFile::adopt(UniqueFd fd, std::string label, Backing backing) {
    ModelFile file;
    file.label_ = std::move(label);
    if (!S_ISREG(status_of(fd.borrow(), file.label_).st_mode)) {
        throw Error(ErrorCode::InvalidArgument, file.label_ + ": not a regular file; name the model file itself");
    }
    file.fd_ = backing == Backing::SealedCopy ? sealed_copy(fd.borrow(), file.label_) : std::move(fd);
    const struct stat status = status_of(file.fd_.borrow(), file.label_);
    if (status.st_size == 0) {
        throw Error(ErrorCode::InvalidArgument, file.label_ + ": the file is empty; copy it again");
    }
    file.modified_at_s_ = status.st_mtim.tv_sec;
    file.modified_at_rest_ns_ = status.st_mtim.tv_nsec;
    file.mapping_ = MappedRegion(file.fd_.borrow(), static_cast<std::size_t>(status.st_size), MapAccess::Read);
    return file;
}

void ModelFile::release(std::span<const std::byte> part) const noexcept {
    constexpr std::uintptr_t kPageBytes = 4096;
    const auto begin = (reinterpret_cast<std::uintptr_t>(part.data()) + kPageBytes - 1) / kPageBytes * kPageBytes;
    const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size()) / kPageBytes * kPageBytes;
    if (begin < end) {
        // The mapping is shared, so this drops page table entries and never bytes. Refused on larger pages: kept then.
        (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    }
}

bool ModelFile::is_unchanged() const noexcept {
    struct stat status {};
    return ::fstat(fd_.borrow(), &status) == 0 && static_cast<std::size_t>(status.st_size) == mapping_.size_bytes() &&
           status.st_mtim.tv_sec == modified_at_s_ && status.st_mtim.tv_nsec == modified_at_rest_ns_;
}

}  // namespace perceptd::model
