// Plain writes; the rename at the end makes a half-written model impossible to see.
#include "gguf_output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "base/contract.hpp"
#include "base/error.hpp"

namespace perceptd::model_tool {

GgufOutput::GgufOutput(std::string path, const model::GgufWriter& header)
    : path_(std::move(path)),
      temporary_path_(path_ + ".part-" + std::to_string(::getpid())),
      fd_(::open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)),
      expected_bytes_(header.file_bytes()) {
    if (!fd_) {
        throw_errno("create", temporary_path_);
    }
    write(header.header());
    tensor_bytes_ = 0;
}

GgufOutput::~GgufOutput() {
    if (!temporary_path_.empty()) {
        ::unlink(temporary_path_.c_str());
    }
}

void GgufOutput::write(std::span<const std::byte> bytes) {
    written_bytes_ += bytes.size();
    tensor_bytes_ += bytes.size();
    while (!bytes.empty()) {
        const ssize_t count = ::write(fd_.borrow(), bytes.data(), bytes.size());
        if (count < 0 && errno != EINTR) {
            throw_errno("write", temporary_path_);
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
        throw_errno("fsync", temporary_path_);
    }
    if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
        throw_errno("rename", path_);
    }
    temporary_path_.clear();
}

}  // namespace perceptd::model_tool
