// Where arena memory comes from: dma-heap, udmabuf or memfd, behind one interface, chosen by probing in the
// configured order. A heap owns nothing after allocate(); the buffer owns its descriptors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/mapped_region.hpp"
#include "base/unique_fd.hpp"

namespace perceptd::arena {

/// Who fills the slots. A device fills through the kernel; a process needs a writable mapping before the seal.
enum class Writer : std::uint8_t { Device, Daemon, Provider };

/// Page-aligned memory that can be shared. Move-only.
class Buffer {
public:
    virtual ~Buffer() = default;
    /// The descriptor a client or device gets: unwritable through it once sealed() (memfd: reopened O_RDONLY and
    /// sealed; dma-heap: allocated O_RDONLY).
    [[nodiscard]] virtual int shared_fd() const noexcept = 0;
    /// The daemon's mapping: writable unless the writer is a device.
    [[nodiscard]] virtual MappedRegion& mapping() noexcept = 0;
    /// A writable descriptor for a provider that has not mapped yet; an empty one after seal() or for other writers.
    [[nodiscard]] virtual UniqueFd provider_fd() const = 0;
    /// Ends the right to make new writable mappings. Must be called before shared_fd() leaves the process. Idempotent.
    virtual void seal() = 0;
};

class Heap {
public:
    virtual ~Heap() = default;
    /// "dma_heap:system", "udmabuf", "memfd".
    [[nodiscard]] virtual std::string name() const = 0;
    /// Empty when a buffer for `writer` can be had; else why not and what to do. Allocates one page to find out.
    [[nodiscard]] virtual std::string probe(Writer writer) const = 0;
    /// Throws std::system_error. `label` shows in /proc and in dma-buf debugfs as "perceptd:<label>".
    [[nodiscard]] virtual std::unique_ptr<Buffer> allocate(std::size_t size_bytes, Writer writer,
                                                           const std::string& label) const = 0;
};

/// `specification` is a heap's name as in the configuration. `device_root` is "/dev" except in tests.
/// Throws Error(InvalidConfiguration) for an unknown name.
std::unique_ptr<Heap> make_heap(const std::string& specification, const std::string& device_root = "/dev");

struct HeapChoice {
    std::unique_ptr<Heap> heap;
    std::vector<std::string> rejected;  ///< "<name>: <reason>" for each heap tried before
};

/// The first heap of `order` that probes well for `writer`. Throws Error(SensorUnavailable) naming every reason.
HeapChoice choose_heap(const std::vector<std::string>& order, Writer writer, const std::string& device_root = "/dev");

}  // namespace perceptd::arena
