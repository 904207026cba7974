// The graph of one model: values per token row, weights by name, operations in execution order.
// Owns names and shapes, nothing else: no weight bytes, no buffers, no kernels.
// Never changes after the passes are done; a batch width is a parameter of a run, not of the graph.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perceptd::graph {

/// How the elements of a value's row lie in memory.
enum class Format : std::uint8_t {
    F32,  ///< 4 bytes each
    Q8,   ///< int8 per element and, per group of 32, an f32 scale and an int32 sum (algorithms.md section 5)
};

inline constexpr std::uint32_t kQ8Group = 32;

/// Bytes of one row of `width` elements. Q8 rows have whole groups: the last one is padded.
[[nodiscard]] std::uint64_t row_bytes(Format format, std::uint32_t width) noexcept;

enum class OpKind : std::uint8_t {
    Embed,        ///< token ids or soft embeddings -> F32
    SelectRows,   ///< the rows whose logits are wanted
    RmsNorm,      ///< F32 -> F32; weights: scale
    Quantize,     ///< F32 -> Q8
    Linear,       ///< Q8 (F32 for float weights) -> F32; weights: matrix [, bias]
    Rope,         ///< F32 -> F32, in place allowed
    KvWrite,      ///< key, value -> the cache; no output
    Scores,       ///< query -> F32 scores over all positions (unfused attention)
    Softmax,      ///< scores -> weights
    WeightedSum,  ///< weights -> F32 heads
    SwiGlu,       ///< gate, up -> F32
    Add,          ///< residual + F32 -> residual, in place
    // Fused forms; each stands for the listed operations and gives the same bits where the arithmetic is the same.
    NormQuantize,  ///< RmsNorm, Quantize
    QkvRope,       ///< RmsNorm, Quantize, 3 x Linear, 2 x Rope, KvWrite -> query; weights: scale, q, k, v [, 3 biases]
    Attention,     ///< Scores, Softmax, WeightedSum by online softmax, then Quantize
    LinearAdd,     ///< Linear, Add
    GateUp,        ///< RmsNorm, Quantize, 2 x Linear, SwiGlu, Quantize -> Q8; weights: scale, gate, up
};
[[nodiscard]] std::string_view name_of(OpKind kind) noexcept;

using ValueId = std::uint32_t;
using WeightId = std::uint32_t;
inline constexpr std::uint32_t kNone = 0xFFFFFFFF;

/// How many rows of a value a pass has.
enum class Rows : std::uint8_t {
    Token,     ///< one per token of the pass
    Selected,  ///< one per wanted row of logits
    Score,     ///< one per token, and the width is multiplied by the number of positions seen
};

struct Value {
    std::string name;
    std::uint32_t width = 0;
    Format format = Format::F32;
    Rows rows = Rows::Token;
};

/// `bytes` is what the packed form takes in memory: what one pass reads. `activation` is the form of input that its
/// kernel takes: Q8 for integer weights, F32 for floating-point ones.
struct Weight {
    std::string name;
    std::uint32_t rows = 0;
    std::uint32_t cols = 0;
    std::uint64_t bytes = 0;
    Format activation = Format::Q8;
};

struct Node {
    OpKind kind = OpKind::Embed;
    std::uint32_t layer = kNone;  ///< kNone: before or after the layers
    std::vector<ValueId> inputs;
    std::vector<ValueId> outputs;
    std::vector<WeightId> weights;
    float epsilon = 0;  ///< RmsNorm and what holds one

    [[nodiscard]] bool operator==(const Node&) const = default;
};

/// What attention needs to know; the same in every layer.
struct AttentionShape {
    std::uint32_t query_heads = 0;
    std::uint32_t kv_heads = 0;
    std::uint32_t head_dim = 0;
    [[nodiscard]] std::uint32_t query_width() const noexcept { return query_heads * head_dim; }
    [[nodiscard]] std::uint32_t kv_width() const noexcept { return kv_heads * head_dim; }
};

/// Plain data; passes take one and give back another.
struct Graph {
    std::uint32_t hidden_width = 0;
    std::uint32_t ffn_width = 0;
    std::uint32_t vocabulary_size = 0;
    std::uint32_t layer_count = 0;
    AttentionShape attention;
    std::vector<Value> values;
    std::vector<Weight> weights;
    std::vector<Node> nodes;
    ValueId logits = kNone;

    ValueId add_value(std::string name, std::uint32_t width, Format format = Format::F32, Rows rows = Rows::Token);
};

/// Checks that every id exists, every value is written before it is read, and widths agree. Throws
/// Error(InvalidArgument) that names the node. Every pass ends with it.
void check(const Graph& graph);

/// One line per node, for `perceptd-model inspect` and for tests.
[[nodiscard]] std::string to_text(const Graph& graph);

}  // namespace perceptd::graph
