// A decoder on the CPU: token ids in, logits out. A job starts at position 0, so one set of cache pages serves all jobs
// of the program one after another. How many tokens go together is learned from the time that layers take; it changes
// no bit.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "engine/decoder_runtime.hpp"
#include "engine/huge_buffer.hpp"
#include "engine/worker_team.hpp"
#include "queue/cpu_program.hpp"

namespace perceptd::queue {
namespace {

constexpr std::uint32_t kTokensAtFirst = 8;

/// Before anything is allocated by its numbers: they may come from a client.
const DecoderProgram& bounded(const DecoderProgram& program) {
    if (program.tokens_max < 1 || program.tokens_max > kJobTokensMax || program.logit_rows_max < 1 ||
        program.logit_rows_max > program.tokens_max) {
        throw Error(ErrorCode::InvalidArgument, program.path + ": a job has 1 to " + std::to_string(kJobTokensMax) +
                                                    " tokens, not " + std::to_string(program.tokens_max) +
                                                    ", and logits of 1 to as many of them, not " +
                                                    std::to_string(program.logit_rows_max));
    }
    return program;
}

engine::DecoderOptions decoder_options(const DecoderProgram& program) {
    engine::DecoderOptions options;
    options.limits.tokens_max = program.tokens_max;
    options.limits.logit_rows_max = program.logit_rows_max;
    options.positions_max = program.tokens_max;
    options.cache_folder = program.weight_folder;
    options.digest = program.digest;
    return options;
}

class CpuDecoder final : public CpuProgram {
public:
    CpuDecoder(const DecoderProgram& program, const CpuDecoderOptions& options)
        : program_(bounded(program)),
          segment_ns_(options.segment_ns),
          team_({.worker_count = options.worker_count, .cpu_indices = {}, .fifo_priority = options.fifo_priority}),
          decoder_(engine::DecoderRuntime::load(program.path, team_, decoder_options(program))),
          ids_(program.tokens_max),
          rows_(program.logit_rows_max) {
        if (program.tokens_max > decoder_.config().context_tokens) {
            throw Error(ErrorCode::InvalidArgument, program.path + ": jobs of " + std::to_string(program.tokens_max) +
                                                        " tokens, but the model's context is " +
                                                        std::to_string(decoder_.config().context_tokens) +
                                                        "; ask for fewer");
        }
        const std::size_t pages = (program.tokens_max + engine::kPagePositions - 1) / engine::kPagePositions;
        pool_ = engine::HugeBuffer(decoder_.kv_shape().page_bytes() * pages);
        pool_.prefault();
        for (std::size_t page = 0; page < pages; ++page) {
            page_table_.push_back(static_cast<std::uint32_t>(page));
        }
    }

    [[nodiscard]] bool accepts(std::span<const CpuBinding> inputs,
                               std::span<const CpuBinding> outputs) const noexcept override {
        if (inputs.size() != 1 || outputs.size() != 1) {
            return false;
        }
        const std::uint64_t tokens = inputs[0].size_bytes / sizeof(std::uint32_t);
        const std::uint64_t rows = outputs[0].size_bytes / row_bytes();
        return inputs[0].size_bytes % sizeof(std::uint32_t) == 0 && tokens > 0 && tokens <= program_.tokens_max &&
               outputs[0].size_bytes % row_bytes() == 0 && rows > 0 && rows <= program_.logit_rows_max &&
               rows <= tokens;
    }

    [[nodiscard]] Status begin(std::span<const CpuBinding> inputs,
                               std::span<const CpuBinding> outputs) noexcept override {
        tokens_ = inputs[0].size_bytes / sizeof(std::uint32_t);
        std::memcpy(ids_.data(), inputs[0].data, tokens_ * sizeof(std::uint32_t));  // judged and used: one copy
        const bool is_vocabulary =
            std::all_of(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(tokens_),
                        [&](std::uint32_t id) { return id < decoder_.config().vocabulary_size; });
        out_ = outputs[0].data;
        first_row_ = tokens_ - outputs[0].size_bytes / row_bytes();
        done_ = 0;
        is_open_ = false;
        return is_vocabulary ? Status::Ok : Status::Invalid;
    }

    [[nodiscard]] Status step() noexcept override {
        const std::int64_t began_ns = monotonic_ns();
        if (!is_open_) {
            if (const Status opened = open_pass(); opened != Status::Ok) {
                return opened;
            }
        }
        const Status status = decoder_.executor().advance();
        longest_ns_ = std::max(longest_ns_, monotonic_ns() - began_ns);
        if (status == Status::Ok) {
            close_pass();
            return done_ < tokens_ ? Status::Again : Status::Ok;
        }
        return status;
    }

private:
    [[nodiscard]] std::uint64_t row_bytes() const noexcept { return decoder_.config().vocabulary_size * sizeof(float); }

    [[nodiscard]] Status open_pass() noexcept {
        count_ = std::min<std::size_t>(chunk_, tokens_ - done_);
        row_count_ = 0;
        for (std::size_t token = std::max(done_, first_row_); token < done_ + count_; ++token) {
            rows_[row_count_++] = static_cast<std::uint32_t>(token - done_);
        }
        longest_ns_ = 0;
        is_open_ = true;
        return decoder_.executor().begin({.token_ids = std::span(ids_).subspan(done_, count_),
                                          .first_position = static_cast<std::uint32_t>(done_),
                                          .logit_rows = std::span(rows_).first(row_count_),
                                          .kv = {decoder_.kv_shape(), pool_.data(), page_table_}});
    }

    void close_pass() noexcept {
        for (std::size_t row = 0; row < row_count_; ++row) {
            const std::size_t place = done_ + rows_[row] - first_row_;
            std::memcpy(out_ + place * row_bytes(), decoder_.executor().logits().row(row), row_bytes());
        }
        done_ += count_;
        is_open_ = false;
        // A layer of a pass of one token takes what it takes; more tokens only where they fit into a segment.
        if (longest_ns_ > segment_ns_ / 2 && chunk_ > 1) {
            chunk_ /= 2;
        } else if (longest_ns_ < segment_ns_ / 5 && count_ == chunk_ && chunk_ < program_.tokens_max) {
            chunk_ = std::min<std::size_t>(chunk_ * 2, program_.tokens_max);
        }
    }

    DecoderProgram program_;
    std::int64_t segment_ns_;
    engine::WorkerTeam team_;
    engine::DecoderRuntime decoder_;
    engine::HugeBuffer pool_;
    std::vector<std::uint32_t> page_table_;
    std::vector<std::uint32_t> ids_;
    std::vector<std::uint32_t> rows_;
    std::byte* out_ = nullptr;
    std::size_t tokens_ = 0;
    std::size_t first_row_ = 0;  // the first token whose logits are wanted
    std::size_t done_ = 0;
    std::size_t count_ = 0;
    std::size_t row_count_ = 0;
    std::size_t chunk_ = kTokensAtFirst;
    std::int64_t longest_ns_ = 0;
    bool is_open_ = false;
};

}  // namespace

std::unique_ptr<CpuProgram> make_cpu_decoder(const DecoderProgram& program, const CpuDecoderOptions& options) {
    if (program.tokens_max == 0 || program.logit_rows_max == 0 || program.logit_rows_max > program.tokens_max) {
        throw Error(ErrorCode::InvalidArgument,
                    program.path + ": a decoder's jobs have at least one token and no more logits than tokens");
    }
    return std::make_unique<CpuDecoder>(program, options);
}

}  // namespace perceptd::queue
