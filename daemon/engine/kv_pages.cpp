#include "engine/kv_pages.hpp"

#include <cstring>

namespace perceptd::engine {

void copy_slot(const KvView& kv, std::size_t from, std::size_t to) noexcept {
    if (from == to) {
        return;
    }
    for (std::size_t layer = 0; layer < kv.shape.layers; ++layer) {
        for (std::size_t head = 0; head < kv.shape.kv_heads; ++head) {
            std::memcpy(kv.key_row(layer, head, to), kv.key_row(layer, head, from), kv.shape.row_bytes());
            std::memcpy(kv.value_row(layer, head, to), kv.value_row(layer, head, from), kv.shape.row_bytes());
        }
    }
}

}  // namespace perceptd::engine
