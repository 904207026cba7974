// A model file as memory. Owns the descriptor and the read-only mapping, for as long as anything points into it.
// Never writes to the file, never follows a path twice: what was opened is what is read, hashed and used.
//
// A mapped file that somebody truncates kills the reader with SIGBUS, and one that somebody edits changes under it. So
// either the file must be safe from others (package.hpp refuses files that others may write), or it is copied first:
// Backing::SealedCopy costs the file's size in memory and is proof against both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/mapped_region.hpp"
#include "base/unique_fd.hpp"

namespace perceptd::model {

enum class Backing : std::uint8_t {
    Mapped,      ///< pages come from the file as they are touched; others can break it
    SealedCopy,  ///< a private copy in memory that nobody can change
};

/// Move-only. Set-up only: blocks on file I/O. Thread-bound while it moves; the bytes may be read from any thread.
class ModelFile {
public:
    /// Opens `path`; a symbolic link as its last part is refused. Throws std::system_error, or Error(InvalidArgument)
    /// for what is no regular file or is empty.
    [[nodiscard]] static ModelFile open(const std::string& path, Backing backing);
    /// Takes over an open descriptor; `label` names it in errors.
    [[nodiscard]] static ModelFile adopt(UniqueFd fd, std::string label, Backing backing);

    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return mapping_.bytes(); }
    /// Lets the pages wholly inside `part` leave this process's memory; reading them again brings back the same bytes.
    void release(std::span<const std::byte> part) const noexcept;
    [[nodiscard]] const std::string& label() const noexcept { return label_; }
    /// Whether size and modification time are still those of the opening; always true for a sealed copy.
    [[nodiscard]] bool is_unchanged() const noexcept;

private:
    ModelFile() = default;

    UniqueFd fd_;
    MappedRegion mapping_;
    std::string label_;
    std::int64_t modified_at_s_ = 0;  // wall clock, compared only with itself
    std::int64_t modified_at_rest_ns_ = 0;
};

}  // namespace perceptd::model
