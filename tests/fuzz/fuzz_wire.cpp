// Any bytes as one client message: decoded or refused with a reason.
#include <cstdlib>
#include <cstring>

#include "session/wire.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using perceptd::session::Request;
    static perceptd::session::Wire wire;
    const Request request = wire.decode(std::as_bytes(std::span(data, size)));
    if (request.kind == Request::Kind::Broken && std::strlen(request.fault) == 0) {
        std::abort();
    }
    std::uint64_t sum = 0;
    for (const std::uint64_t id : request.window_ids) {
        sum += id;
    }
    if (request.window_ids.size() > perceptd::session::kReleaseIdsMax || (sum != 0 && request.window_ids.empty())) {
        std::abort();
    }
    return 0;
}
