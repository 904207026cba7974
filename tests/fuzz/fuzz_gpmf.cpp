// Any bytes as one GPMF packet.
#include <cmath>
#include <cstdlib>

#include "gpmf.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        const perceptd::replay::GpmfPacket packet = perceptd::replay::parse_gpmf({data, size});
        std::vector<perceptd::replay::ImuRow> rows;
        perceptd::replay::append_rows(packet, 1'000'000'000, 1'001'000'000, rows);
        for (std::size_t i = 1; i < rows.size(); ++i) {
            if (rows[i].time_ns < rows[i - 1].time_ns) {
                std::abort();
            }
        }
    } catch (const perceptd::replay::RecordingError&) {
    }
    return 0;
}
