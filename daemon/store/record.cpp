#include "store/record.hpp"

#include <time.h>

#include "store/crc32c.hpp"

namespace perceptd::store {
namespace {

constexpr std::size_t kFrameBytes = 8;

}  // namespace

std::string encoded(const TurnStart& start) {
    ByteWriter out;
    out.varint(start.uid);
    out.varint(start.thread);
    out.text(start.model);
    out.text(start.model_digest);
    out.text(start.request);
    out.varint(static_cast<std::uint64_t>(start.started_at_ms));
    return std::string(out.view());
}

bool decode(std::string_view text, TurnStart& start) {
    ByteReader in(text);
    start.uid = static_cast<std::uint32_t>(in.varint());
    start.thread = in.varint();
    start.model = in.text();
    start.model_digest = in.text();
    start.request = in.text();
    start.started_at_ms = static_cast<std::int64_t>(in.varint());
    return in.is_good() && in.left() == 0;
}

std::int64_t wall_ms() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

void put_record(ByteWriter& out, const Record& record, std::span<const std::uint32_t> tokens, std::string_view detail) {
    const std::size_t begin = out.bytes().size();
    out.fixed(0, kFrameBytes);
    out.fixed(record.seq, 8);
    out.fixed(static_cast<std::uint64_t>(record.kind), 1);
    out.varint(record.turn);
    out.varint(record.first_position);
    out.fixed(record.rng_key, 8);
    out.fixed(record.sampler_digest, 8);
    out.ids(tokens);
    out.text(detail);
    const std::span<const std::byte> payload = out.bytes().subspan(begin + kFrameBytes);
    const std::uint32_t checksum = crc32c(payload);
    out.patch(begin, payload.size(), 4);
    out.patch(begin + 4, checksum, 4);
}

JournalContents scan(std::span<const std::byte> bytes) {
    JournalContents found;
    TurnStart& start = found.turn.start;
    bool has_end = false;
    while (found.valid_bytes < bytes.size()) {
        const std::span<const std::byte> rest = bytes.subspan(found.valid_bytes);
        ByteReader frame(rest);
        const std::uint64_t size = frame.fixed(4);
        const auto checksum = static_cast<std::uint32_t>(frame.fixed(4));
        if (!frame.is_good() || size > kRecordBytesMax || size > frame.left()) {
            found.fault = "a record is torn";
            break;
        }
        const std::span<const std::byte> payload = rest.subspan(kFrameBytes, size);
        if (crc32c(payload) != checksum) {
            found.fault = "a record's checksum is wrong";
            break;
        }
        ByteReader in(payload);
        Record record;
        record.seq = in.fixed(8);
        record.kind = static_cast<RecordKind>(in.fixed(1));
        record.turn = in.varint();
        record.first_position = in.varint();
        record.rng_key = in.fixed(8);
        record.sampler_digest = in.fixed(8);
        const std::vector<std::uint32_t> tokens = in.ids();
        const std::string detail = in.text();
        const bool is_first = !found.has_begin;
        if (!in.is_good() || in.left() != 0 || record.seq != found.record_count || has_end ||
            is_first != (record.kind == RecordKind::Begin) ||
            (!is_first && (record.turn != start.id || record.rng_key != start.rng_key ||
                           record.sampler_digest != start.sampler_digest))) {
            found.fault = "a record is out of order";
            break;
        }
        if (record.kind == RecordKind::Begin) {
            start = {.id = record.turn,
                     .prompt = tokens,
                     .rng_key = record.rng_key,
                     .sampler_digest = record.sampler_digest};
            found.first_token = record.first_position - tokens.size();
            if (record.first_position < tokens.size() || !decode(detail, start)) {
                found.fault = "the first record describes no turn";
                break;
            }
            found.has_begin = true;
        } else if (record.first_position != start.prompt.size() + found.first_token + found.turn.tokens.size()) {
            found.fault = "tokens are missing";
            break;
        } else if (record.kind == RecordKind::Tokens) {
            found.turn.tokens.insert(found.turn.tokens.end(), tokens.begin(), tokens.end());
        } else if (record.kind == RecordKind::End) {
            found.turn.finish = detail;
            has_end = true;
        } else {
            found.fault = "a record is of an unknown kind";
            break;
        }
        ++found.record_count;
        found.valid_bytes += kFrameBytes + size;
    }
    return found;
}

}  // namespace perceptd::store
