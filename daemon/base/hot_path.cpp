#include "base/hot_path.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/contract.hpp"

namespace perceptd::hot_path {
namespace {

std::atomic<std::uint64_t> allocations{0};
thread_local bool is_hot = false;

}  // namespace

Scope::Scope() noexcept {
    PERCEPTD_ASSERT(!is_hot);
    is_hot = true;
}

Scope::~Scope() {
    is_hot = false;
}

std::uint64_t allocation_count() noexcept {
    return allocations.load(std::memory_order_relaxed);
}

void note_allocation() noexcept {
    if (is_hot) {
        allocations.fetch_add(1, std::memory_order_relaxed);
    }
}

namespace {

[[maybe_unused]] void* counted(std::size_t size_bytes, std::size_t alignment_bytes) {
    note_allocation();
    if (size_bytes == 0) {
        size_bytes = 1;
    }
    void* memory = nullptr;
    if (alignment_bytes <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) {
        memory = std::malloc(size_bytes);
    } else {
        // aligned_alloc wants a multiple of the alignment.
        memory =
            std::aligned_alloc(alignment_bytes, (size_bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes);
    }
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

}  // namespace
}  // namespace perceptd::hot_path

// AddressSanitizer pairs new with delete itself; a replaced half would look like a mismatch to it.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PERCEPTD_SANITIZER_ALLOCATES
#endif
#endif
#ifndef PERCEPTD_SANITIZER_ALLOCATES

// The replaced allocator: every C++ allocation of the process passes here, and only hot threads are counted.
void* operator new(std::size_t size_bytes) {
    return perceptd::hot_path::counted(size_bytes, 1);
}
void* operator new(std::size_t size_bytes, std::align_val_t alignment) {
    return perceptd::hot_path::counted(size_bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}

#endif
