// A GGUF file being written: the header first, then tensor after tensor. Owns a file without a name in the target's
// folder, which becomes the target at commit() and is gone otherwise, also when the process is killed. Never begins
// what the disk has no room for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/unique_fd.hpp"
#include "model/gguf_writer.hpp"

namespace perceptd::model_tool {

/// Throws std::system_error, and Error(QuotaExceeded) when the file is larger than the free space.
class GgufOutput {
public:
    GgufOutput(std::string path, const model::GgufWriter& header);
    GgufOutput(const GgufOutput&) = delete;
    GgufOutput& operator=(const GgufOutput&) = delete;

    /// The next bytes of the current tensor.
    void write(std::span<const std::byte> bytes);
    /// Ends the current tensor: pads to the alignment.
    void end_tensor();
    /// Checks that everything declared was written, syncs, and gives the file its name.
    void commit();

private:
    std::string path_;
    UniqueFd fd_;
    std::uint64_t expected_bytes_;
    std::uint64_t written_bytes_ = 0;
    std::uint64_t tensor_bytes_ = 0;
};

}  // namespace perceptd::model_tool
