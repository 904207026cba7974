// A thin owner of OpenSSL's EVP context.
#include "model/digest.hpp"

#include <openssl/evp.h>

#include <new>

namespace perceptd::model {
namespace {

void require(int is_done) {
    if (is_done != 1) {
        throw std::bad_alloc();
    }
}

int nibble_of(char digit) noexcept {
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
    if (context_ == nullptr || EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) != 1) {
        EVP_MD_CTX_free(context_);
        throw std::bad_alloc();
    }
}

Sha256::~Sha256() {
    EVP_MD_CTX_free(context_);
}

void Sha256::add(std::span<const std::byte> bytes) {
    require(EVP_DigestUpdate(context_, bytes.data(), bytes.size()));
}

void Sha256::add_u64(std::uint64_t value) {
    std::array<std::byte, 8> bytes{};
    for (std::byte& byte : bytes) {
        byte = static_cast<std::byte>(value & 0xffU);
        value >>= 8;
    }
    add(bytes);
}

Digest Sha256::finish() {
    Digest digest{};
    unsigned size_bytes = 0;
    require(EVP_DigestFinal_ex(context_, digest.data(), &size_bytes));
    return digest;
}

Digest sha256_of(std::span<const std::byte> bytes) {
    Sha256 sha;
    sha.add(bytes);
    return sha.finish();
}

std::string to_hex(const Digest& digest) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    text.reserve(2 * digest.size());
    for (const std::uint8_t byte : digest) {
        text.push_back(kDigits[byte >> 4]);
        text.push_back(kDigits[byte & 0xfU]);
    }
    return text;
}

std::optional<Digest> digest_from_hex(std::string_view text) {
    Digest digest{};
    if (text.size() != 2 * digest.size()) {
        return std::nullopt;
    }
    for (std::size_t i = 0; i < digest.size(); ++i) {
        const int high = nibble_of(text[2 * i]);
        const int low = nibble_of(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            return std::nullopt;
        }
        digest[i] = static_cast<std::uint8_t>(high * 16 + low);
    }
    return digest;
}

}  // namespace perceptd::model
