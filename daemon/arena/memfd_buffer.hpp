// The memory behind the memfd and udmabuf heaps, and behind every arena's header page.
#pragma once

#include <cstddef>
#include <string>

#include "arena/heap.hpp"

namespace perceptd::arena {

/// A mapped memfd that can shrink and grow no more from birth and admits no new writer after seal().
class MemfdBuffer : public Buffer {
public:
    MemfdBuffer(std::size_t size_bytes, Writer writer, const std::string& label);

    [[nodiscard]] int shared_fd() const noexcept override { return read_only_.borrow(); }
    [[nodiscard]] MappedRegion& mapping() noexcept override { return mapping_; }
    [[nodiscard]] UniqueFd provider_fd() const override;
    void seal() override;

protected:
    [[nodiscard]] int writable_fd() const noexcept { return writable_.borrow(); }

private:
    Writer writer_;
    UniqueFd writable_;  // closed by seal()
    UniqueFd read_only_;
    MappedRegion mapping_;
};

}  // namespace perceptd::arena
