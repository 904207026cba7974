// Any bytes as the journal of a turn: read up to the first bad record, never more; and what was read and is written
// again reads as the same. The question of the turn is decoded as it comes from a file that somebody may have altered.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "generate/question.hpp"
#include "store/crc32c.hpp"
#include "store/record.hpp"

namespace {

using namespace perceptd;
using namespace perceptd::store;

void require(bool holds) {
    if (!holds) {
        std::abort();
    }
}

/// The checksum of the record at `at` made right: what a fuzzer cannot guess.
void mend(std::vector<std::byte>& bytes, std::size_t at) {
    ByteReader frame(std::span(bytes).subspan(at));
    const std::uint64_t size = frame.fixed(4);
    if (bytes.size() - at < 8 || size > bytes.size() - at - 8) {
        return;
    }
    const std::uint32_t checksum = crc32c(std::span(bytes).subspan(at + 8, size));
    for (std::size_t i = 0; i < 4; ++i) {
        bytes[at + 4 + i] = static_cast<std::byte>(checksum >> (8 * i));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::vector<std::byte> bytes(size);
    std::transform(data, data + size, bytes.begin(), [](std::uint8_t byte) { return std::byte{byte}; });
    JournalContents found = scan(bytes);
    require(found.valid_bytes <= size && (found.fault.empty() == (found.valid_bytes == size)));
    for (int records = 0; records < 64 && !found.fault.empty(); ++records) {
        mend(bytes, found.valid_bytes);
        const JournalContents again = scan(bytes);
        require(again.valid_bytes >= found.valid_bytes && again.record_count >= found.record_count);
        if (again.valid_bytes == found.valid_bytes) {
            break;
        }
        found = again;
    }
    if (!found.has_begin) {
        return 0;
    }
    const TurnStart& start = found.turn.start;
    ByteWriter out;
    Record record{
        0, RecordKind::Begin, start.id, start.prompt.size() + found.first_token, start.rng_key, start.sampler_digest};
    put_record(out, record, start.prompt, encoded(start));
    record.seq = 1;
    record.kind = RecordKind::Tokens;
    put_record(out, record, found.turn.tokens, {});
    const JournalContents same = scan(out.bytes());
    require(same.fault.empty() && same.turn.tokens == found.turn.tokens && same.turn.start.prompt == start.prompt &&
            same.turn.start.request == start.request && same.first_token == found.first_token);
    generate::Question question;
    if (generate::decode(start.request, question)) {
        generate::Question twice;
        require(generate::decode(generate::encoded(question), twice) &&
                generate::sampling_digest(question) == generate::sampling_digest(twice));
    }
    return 0;
}
