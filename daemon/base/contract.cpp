#include "base/contract.hpp"

#include <cstdio>
#include <cstdlib>

namespace perceptd {

void contract_failed(const char* condition, const char* file, int line) noexcept {
    std::fprintf(stderr, "perceptd: broken invariant at %s:%d: %s\n", file, line, condition);
    std::abort();
}

}  // namespace perceptd
