// A record of a turn's journal: {len u32, crc32c u32, seq u64, kind u8, turn, first position, rng key u64, sampler
// digest u64, token ids, detail}; numbers without a width are varints, len counts what follows the checksum. Owns its
// values. Never trusted: scan() stops at the first record that is torn, rotten, out of order or of another turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "store/byte_stream.hpp"
#include "store/turn.hpp"

namespace perceptd::store {

enum class RecordKind : std::uint8_t {
    Begin = 1,   ///< tokens: the prompt; detail: encoded(TurnStart)
    Tokens = 2,  ///< tokens of the answer from the first position on
    End = 3,     ///< detail: why
};

struct Record {
    std::uint64_t seq = 0;  ///< from 0, by 1
    RecordKind kind = RecordKind::Tokens;
    std::uint64_t turn = 0;
    std::uint64_t first_position = 0;
    std::uint64_t rng_key = 0;
    std::uint64_t sampler_digest = 0;
};

inline constexpr std::size_t kRecordBytesMax = 4U << 20;

/// Appends the record to `out`.
void put_record(ByteWriter& out, const Record& record, std::span<const std::uint32_t> tokens, std::string_view detail);

/// A journal's whole part.
struct JournalContents {
    bool has_begin = false;
    StoredTurn turn;                ///< of it, only the tokens from `first_token` on
    std::uint64_t first_token = 0;  ///< number of turn.tokens[0] in the answer: not 0 when a turn was resumed
    std::uint64_t record_count = 0;
    std::size_t valid_bytes = 0;
    std::string fault;  ///< why the scan stopped before the end; empty: it did not
};

/// Reads `bytes` up to the first bad record.
[[nodiscard]] JournalContents scan(std::span<const std::byte> bytes);

}  // namespace perceptd::store
