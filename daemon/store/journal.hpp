// The append-only file of one turn while it runs. What append() has taken survives kill -9 at once (it is the
// kernel's), and the loss of power as soon as sync() has come back. Owns the file's descriptor. Never tries a failed
// fsync again: what the kernel dropped then it would call safe, so the turn ends with the reason.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "base/unique_fd.hpp"
#include "store/record.hpp"

namespace perceptd::store {

/// The calls that may fail for reasons outside; a test passes its own.
struct FileCalls {
    ssize_t (*write)(int, const void*, std::size_t) = nullptr;  ///< null: the system's
    int (*fdatasync)(int) = nullptr;                            ///< null: the system's
};

/// The file name of a turn's journal.
[[nodiscard]] std::string journal_name(std::uint64_t turn);

/// Threads: append() and finish() from one thread, sync() from another; the rest from any.
class Journal {
public:
    /// Makes the file (0600) in the folder and writes the first record; tokens will be numbered from `first_token` on.
    /// Throws std::system_error.
    Journal(int folder_fd, TurnStart start, std::uint64_t first_token, FileCalls calls = {});
    Journal(const Journal&) = delete;
    Journal& operator=(const Journal&) = delete;

    /// Throws std::system_error (a full disk, an I/O error); the tokens are then not to be delivered, and every later
    /// call throws the same.
    void append(std::span<const std::uint32_t> tokens);
    /// The last record. Throws as append().
    void finish(std::string_view reason);
    /// fdatasync. Throws as append(). Blocks for the disk.
    void sync();

    [[nodiscard]] const TurnStart& start() const noexcept { return start_; }
    /// Why nothing more can be kept; 0: nothing went wrong.
    [[nodiscard]] int failure() const noexcept { return failure_.load(std::memory_order_acquire); }
    [[nodiscard]] std::uint64_t written_bytes() const noexcept {
        return written_bytes_.load(std::memory_order_acquire);
    }
    [[nodiscard]] std::uint64_t written_tokens() const noexcept {
        return written_tokens_.load(std::memory_order_acquire);
    }
    /// So many tokens (from number 0 on) would survive the loss of power now.
    [[nodiscard]] std::uint64_t synced_tokens() const noexcept {
        return synced_tokens_.load(std::memory_order_acquire);
    }

private:
    void put(RecordKind kind, std::span<const std::uint32_t> tokens, std::string_view detail);
    [[noreturn]] void fail(const char* operation, int code);
    void require_sound();

    TurnStart start_;
    FileCalls calls_;
    UniqueFd file_;
    ByteWriter buffer_;
    std::uint64_t seq_ = 0;
    std::uint64_t next_token_;
    std::atomic<int> failure_{0};
    std::atomic<std::uint64_t> written_bytes_{0};
    std::atomic<std::uint64_t> written_tokens_;
    std::atomic<std::uint64_t> synced_tokens_{0};
};

}  // namespace perceptd::store
