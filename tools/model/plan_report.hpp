// Says what a decoder will do before it runs: operations, workspace, bytes per pass, tiles for a TCM, what to pin.
// Owns nothing. Never reads a weight: the file's header is enough.
#pragma once

#include <cstdint>
#include <string>

namespace perceptd::model_tool {

struct PlanOptions {
    std::string model_path;
    std::string draft_path;             ///< empty: none
    std::uint32_t positions = 2048;     ///< in the cache before the pass
    std::uint64_t tcm_bytes = 0;        ///< 0: no tile plan
    std::uint64_t pinned_bytes = 0;     ///< budget of the residency plan; 0: none
    double draft_passes_per_cycle = 4;  ///< what a pinned byte of the draft saves, relative to the target's
    bool fuse = true;
    bool as_json = false;
};

/// Throws Error for a file that is no decoder, std::system_error when one cannot be opened.
[[nodiscard]] std::string plan_report(const PlanOptions& options);

}  // namespace perceptd::model_tool
