// The three heaps. Each owns no memory of its own; make_heap() is the only user outside tests.
#pragma once

#include <string>

#include "arena/heap.hpp"

namespace perceptd::arena {

/// Anonymous memory of the kernel's page cache, sealed FUTURE_WRITE|SHRINK|GROW|SEAL, handed out read-only.
class MemfdHeap final : public Heap {
public:
    [[nodiscard]] std::string name() const override { return "memfd"; }
    [[nodiscard]] std::string probe(Writer writer) const override;
    [[nodiscard]] std::unique_ptr<Buffer> allocate(std::size_t size_bytes, Writer writer,
                                                   const std::string& label) const override;
};

/// A memfd that the kernel also knows as a dma-buf, so that devices import it without a copy. The dma-buf stays here;
/// clients get the memfd, because a dma-buf made from it would stay writable.
class UdmabufHeap final : public Heap {
public:
    explicit UdmabufHeap(std::string device_root) : device_(std::move(device_root) + "/udmabuf") {}
    [[nodiscard]] std::string name() const override { return "udmabuf"; }
    [[nodiscard]] std::string probe(Writer writer) const override;
    [[nodiscard]] std::unique_ptr<Buffer> allocate(std::size_t size_bytes, Writer writer,
                                                   const std::string& label) const override;

private:
    std::string device_;
};

/// Memory of /dev/dma_heap/<name>, allocated O_RDONLY: a device fills it, no process can. Refuses other writers.
class DmaHeap final : public Heap {
public:
    DmaHeap(const std::string& device_root, std::string heap_name)
        : heap_name_(std::move(heap_name)), device_(device_root + "/dma_heap/" + heap_name_) {}
    [[nodiscard]] std::string name() const override { return "dma_heap:" + heap_name_; }
    [[nodiscard]] std::string probe(Writer writer) const override;
    [[nodiscard]] std::unique_ptr<Buffer> allocate(std::size_t size_bytes, Writer writer,
                                                   const std::string& label) const override;

private:
    std::string heap_name_;
    std::string device_;
};

}  // namespace perceptd::arena
