// SHA-256 (OpenSSL's) of files and vocabularies, and its hexadecimal text. Owns the running state.
// Never compares in constant time: digests here are public.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace perceptd::model {

using Digest = std::array<std::uint8_t, 32>;

/// SHA-256 over what is added. Thread-bound. Throws std::bad_alloc when OpenSSL has no memory or no SHA-256.
class Sha256 {
public:
    Sha256();
    ~Sha256();
    Sha256(const Sha256&) = delete;
    Sha256& operator=(const Sha256&) = delete;

    void add(std::span<const std::byte> bytes);
    void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
    /// Eight bytes, little endian.
    void add_u64(std::uint64_t value);
    /// The digest; nothing may be added afterwards.
    [[nodiscard]] Digest finish();

private:
    evp_md_ctx_st* context_;
};

/// The digest of one piece of memory.
[[nodiscard]] Digest sha256_of(std::span<const std::byte> bytes);

/// 64 lower-case hexadecimal digits, and back; nothing else is a digest.
[[nodiscard]] std::string to_hex(const Digest& digest);
[[nodiscard]] std::optional<Digest> digest_from_hex(std::string_view text);

}  // namespace perceptd::model
