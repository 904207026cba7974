#include "store/journal.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.hpp"

namespace perceptd::store {

std::string journal_name(std::uint64_t turn) {
    return std::to_string(turn) + ".journal";
}

Journal::Journal(int folder_fd, TurnStart start, std::uint64_t first_token, FileCalls calls)
    : start_(std::move(start)), calls_(calls), next_token_(first_token), written_tokens_(first_token) {
    calls_.write = calls_.write == nullptr ? ::write : calls_.write;
    calls_.fdatasync = calls_.fdatasync == nullptr ? ::fdatasync : calls_.fdatasync;
    const std::string name = journal_name(start_.id);
    file_.reset(
        ::openat(folder_fd, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file_) {
        throw_errno("open", name);
    }
    try {
        put(RecordKind::Begin, start_.prompt, encoded(start_));
    } catch (...) {
        ::unlinkat(folder_fd, name.c_str(), 0);  // a turn that nobody heard of
        throw;
    }
}

void Journal::require_sound() {
    if (const int code = failure()) {
        errno = code;
        throw_errno("journal of turn " + std::to_string(start_.id));
    }
}

void Journal::fail(const char* operation, int code) {
    int none = 0;
    failure_.compare_exchange_strong(none, code);
    errno = code;
    throw_errno(operation, journal_name(start_.id));
}

void Journal::put(RecordKind kind, std::span<const std::uint32_t> tokens, std::string_view detail) {
    require_sound();
    buffer_.clear();
    put_record(buffer_,
               {.seq = seq_,
                .kind = kind,
                .turn = start_.id,
                .first_position = start_.prompt.size() + next_token_,
                .rng_key = start_.rng_key,
                .sampler_digest = start_.sampler_digest},
               tokens, detail);
    std::span<const std::byte> rest = buffer_.bytes();
    while (!rest.empty()) {
        const ssize_t count = calls_.write(file_.borrow(), rest.data(), rest.size());
        if (count > 0) {
            rest = rest.subspan(static_cast<std::size_t>(count));
        } else if (count == 0 || errno != EINTR) {
            fail("write", count == 0 ? ENOSPC : errno);  // a torn record stays: a scan stops before it
        }
    }
    ++seq_;
    written_bytes_.fetch_add(buffer_.bytes().size(), std::memory_order_release);
}

void Journal::append(std::span<const std::uint32_t> tokens) {
    put(RecordKind::Tokens, tokens, {});
    next_token_ += tokens.size();
    written_tokens_.store(next_token_, std::memory_order_release);
}

void Journal::finish(std::string_view reason) {
    put(RecordKind::End, {}, reason);
}

void Journal::sync() {
    require_sound();
    const std::uint64_t tokens = written_tokens();
    int result = 0;
    do {
        result = calls_.fdatasync(file_.borrow());
    } while (result != 0 && errno == EINTR);
    if (result != 0) {
        fail("fdatasync", errno);
    }
    synced_tokens_.store(tokens, std::memory_order_release);
}

}  // namespace perceptd::store
