// A program as the CPU device runs it: one job of it at a time, in short steps. Implementations own weights and
// scratch. Never reads an index or a size from a job's memory without checking its own copy: the client can write there
// meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.hpp"
#include "queue/program.hpp"

namespace perceptd::queue {

/// A binding in the device's address space.
struct CpuBinding {
    std::byte* data = nullptr;
    std::uint64_t size_bytes = 0;
    int fd = -1;  ///< of the whole buffer, for cache maintenance; borrowed from it
    bool is_dma_buf = false;
};

/// Threads: accepts() on the queue's thread, begin() and step() on the device's, the destructor on the loader's.
class CpuProgram {
public:
    virtual ~CpuProgram() = default;

    /// Whether sizes, counts and alignment fit. Looks at no memory. Real-time.
    [[nodiscard]] virtual bool accepts(std::span<const CpuBinding> inputs,
                                       std::span<const CpuBinding> outputs) const noexcept = 0;
    /// A new job; one that had begun before and not ended is forgotten. Ok or Invalid. Real-time.
    [[nodiscard]] virtual Status begin(std::span<const CpuBinding> inputs,
                                       std::span<const CpuBinding> outputs) noexcept = 0;
    /// A short part of it: Again, Ok, Invalid, NotFinite. Real-time.
    [[nodiscard]] virtual Status step() noexcept = 0;
};

/// A product or a convolution; steps of about 60 µs. Throws Error(InvalidArgument) for a shape that makes no sense.
[[nodiscard]] std::unique_ptr<CpuProgram> make_cpu_standard(const StandardProgram& program);

struct CpuDecoderOptions {
    std::size_t worker_count = 1;
    std::int64_t segment_ns = 2'000'000;  ///< what one step should take at most
    int fifo_priority = 0;
};
/// A decoder; steps of one layer over as many tokens as segment_ns allows, at least one. Reads the file and packs
/// weights: takes seconds. Throws what engine::DecoderRuntime::load() throws, Error(InvalidArgument) for limits beyond
/// the model.
[[nodiscard]] std::unique_ptr<CpuProgram> make_cpu_decoder(const DecoderProgram& program,
                                                           const CpuDecoderOptions& options);

}  // namespace perceptd::queue
