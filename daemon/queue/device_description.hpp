// What a device says about itself, and how a buffer is described to it. Plain values; the descriptor is borrowed.
#pragma once

#include <cstdint>
#include <string>

namespace perceptd::queue {

/// A buffer or a program of one device; 0: none. Never given out twice in a device's life.
using DeviceHandle = std::uint64_t;

/// percept_device_info, plus how the device orders its work.
struct DeviceDescription {
    std::string name;      ///< a-z 0-9 . _ -
    std::string firmware;  ///< changes whenever results may change
    std::uint32_t elements = 0;
    std::uint32_t queue_depth = 2;  ///< jobs that it takes before Full; 2 keep it busy
    std::int64_t job_limit_ns =
        0;  ///< a job that runs longer is lost, and the device with it; 0: the queue's own limit
    std::uint64_t memory_bytes = 0;  ///< 0: it computes in the buffers' own memory
    std::uint64_t tcm_bytes = 0;
    /// It looks for a more urgent job at the end of every segment, and keeps to grants. Otherwise first in, first out.
    bool is_preemptive = false;
    std::int64_t segment_ns = 0;  ///< the longest time between two such looks
};

enum BufferAccess : std::uint32_t { kAccessRead = 1, kAccessWrite = 2 };

/// Memory behind a descriptor (dma-buf or sealed memfd); percept_driver_buffer. The giver has checked kind, seals,
/// size.
struct BufferDescription {
    int fd = -1;  ///< borrowed for the call: an implementation duplicates what it keeps
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0;
    std::uint64_t modifier = 0;      ///< DRM format modifier; 0: linear
    std::uint32_t format = 0;        ///< DRM fourcc; 0: plain bytes
    std::uint32_t stride_bytes = 0;  ///< 0: rows follow each other
    std::uint32_t access = 0;        ///< BufferAccess bits: what jobs may do
};

}  // namespace perceptd::queue
