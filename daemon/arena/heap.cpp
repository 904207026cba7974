#include "arena/heap.hpp"

#include <utility>

#include "arena/heaps.hpp"
#include "base/error.hpp"

namespace perceptd::arena {

std::unique_ptr<Heap> make_heap(const std::string& specification, const std::string& device_root) {
    constexpr std::string_view kDmaHeap = "dma_heap:";
    if (specification == "memfd") {
        return std::make_unique<MemfdHeap>();
    }
    if (specification == "udmabuf") {
        return std::make_unique<UdmabufHeap>(device_root);
    }
    if (specification.starts_with(kDmaHeap)) {
        const std::string name = specification.substr(kDmaHeap.size());
        if (!name.empty() && name.find('/') == std::string::npos && name != "." && name != "..") {
            return std::make_unique<DmaHeap>(device_root, name);
        }
    }
    throw Error(ErrorCode::InvalidConfiguration,
                "unknown heap '" + specification + "': use dma_heap:<name>, udmabuf or memfd");
}

HeapChoice choose_heap(const std::vector<std::string>& order, Writer writer, const std::string& device_root) {
    HeapChoice choice;
    for (const std::string& specification : order) {
        auto heap = make_heap(specification, device_root);
        std::string reason = heap->probe(writer);
        if (reason.empty()) {
            choice.heap = std::move(heap);
            return choice;
        }
        choice.rejected.push_back(specification + ": " + std::move(reason));
    }
    std::string text = "no heap of /arena/heaps works";
    for (const std::string& reason : choice.rejected) {
        text += "; " + reason;
    }
    throw Error(ErrorCode::SensorUnavailable, text + "; add \"memfd\" to /arena/heaps, it always works");
}

}  // namespace perceptd::arena
