#include "sync/aligner.hpp"

#include <algorithm>

namespace perceptd::sync {

using sensor::Kind;

namespace {

// Hub times outside this are nonsense from a driver; inside it no sum below can overflow.
constexpr std::int64_t kRange_ns = std::int64_t{1} << 61;

bool in_range(std::int64_t time_ns) noexcept {
    return time_ns > -kRange_ns && time_ns < kRange_ns;
}

}  // namespace

Aligner::Aligner(const AlignerOptions& options) noexcept : options_(options) {
    options_.longest_window_ns = std::clamp<std::int64_t>(options_.longest_window_ns, 1, kRange_ns / 4);
    options_.nominal_period_ns = std::clamp<std::int64_t>(options_.nominal_period_ns, 1, options_.longest_window_ns);
    for (std::size_t i = 0; i < sensor::kKindCount; ++i) {
        streams_[i].present = options_.present[i];
        if (streams_[i].present) {
            longest_delivery_ns_ = std::max(longest_delivery_ns_, options_.delivery_ns[i]);
        }
    }
}

Status Aligner::begin(Kind kind, std::int64_t first_ns) noexcept {
    Stream& s = stream(kind);
    if (!s.present || s.ended || s.begun || !in_range(first_ns)) {
        return Status::Invalid;
    }
    s.begun = true;
    s.first_ns = first_ns;
    s.watermark_ns = std::max(s.watermark_ns, first_ns);
    return Status::Ok;
}

Status Aligner::on_frame(std::int64_t hub_ns, const sensor::Sample& frame) noexcept {
    Stream& camera = stream(Kind::Camera);
    if (!camera.present || !in_range(hub_ns)) {
        ++counters_.refused_frames;
        return Status::Invalid;
    }
    if (camera.ended) {
        ++counters_.refused_frames;
        return Status::Ended;
    }
    if (last_frame_ns_ != INT64_MIN && hub_ns <= last_frame_ns_) {
        ++(hub_ns == last_frame_ns_ ? counters_.duplicate_frames : counters_.backward_frames);
        return hub_ns == last_frame_ns_ ? Status::Duplicate : Status::Late;
    }
    if (hub_ns < camera.watermark_ns || (is_open_ && hub_ns < open_.t0_ns)) {
        ++counters_.late_frames;
        return Status::Late;
    }
    // A tick guessed this frame's very stamp: the frame takes the window over.
    const bool adopted = is_open_ && hub_ns == open_.t0_ns && !open_.has_frame;
    if (adopted) {
        open_.frame = frame;
        open_.has_frame = true;
    } else {
        if (queue_count_ == kFrameQueue) {
            ++counters_.refused_frames;
            return Status::Full;
        }
        queue_[(queue_head_ + queue_count_) % kFrameQueue] = {hub_ns, frame};
        ++queue_count_;
    }
    if (!camera.begun) {
        camera.begun = true;
        camera.first_ns = hub_ns;
    }
    last_frame_ns_ = hub_ns;
    camera.watermark_ns = hub_ns + 1;
    ++counters_.frames;
    return Status::Ok;
}

Status Aligner::advance(Kind kind, std::int64_t watermark_ns) noexcept {
    Stream& s = stream(kind);
    if (!s.present || !in_range(watermark_ns)) {
        return Status::Invalid;
    }
    if (s.ended) {
        return Status::Ended;
    }
    if (!s.begun && kind != Kind::Camera) {
        return begin(kind, watermark_ns);
    }
    s.watermark_ns = std::max(s.watermark_ns, watermark_ns);
    return Status::Ok;
}

void Aligner::end(Kind kind) noexcept {
    stream(kind).ended = true;
}

Status Aligner::on_epoch(std::uint32_t epoch, std::int64_t at_ns) noexcept {
    if (!in_range(at_ns)) {
        return Status::Invalid;
    }
    if (!is_open_ || at_ns <= open_.t0_ns) {
        epoch_ = epoch;
        if (is_open_) {
            open_.flags |= kEpoch;
            open_.epoch = epoch;
        }
        return Status::Ok;
    }
    // Two bumps before one window closed: the earlier cut stands, the newer epoch names what follows.
    epoch_at_ns_ = epoch_pending_ ? std::min(epoch_at_ns_, at_ns) : at_ns;
    pending_epoch_ = epoch;
    epoch_pending_ = true;
    return Status::Ok;
}

bool Aligner::all_ended() const noexcept {
    return std::all_of(streams_.begin(), streams_.end(), [](const Stream& s) { return !s.present || s.ended; });
}

std::int64_t Aligner::horizon_ns() const noexcept {
    std::int64_t horizon_ns = INT64_MIN;
    for (const Stream& s : streams_) {
        if (s.present) {
            horizon_ns = std::max(horizon_ns, s.watermark_ns);
        }
    }
    return horizon_ns;
}

std::int64_t Aligner::earliest_ns() const noexcept {
    std::int64_t earliest_ns = INT64_MAX;
    for (const Stream& s : streams_) {
        if (s.present && s.begun) {
            earliest_ns = std::min(earliest_ns, s.first_ns);
        }
    }
    return earliest_ns;
}

std::int64_t Aligner::wait_until_ns(std::int64_t end_ns) const noexcept {
    return end_ns + options_.deadline_ns + longest_delivery_ns_;
}

bool Aligner::is_due(std::int64_t end_ns, std::int64_t now_ns) const noexcept {
    return options_.live && now_ns >= wait_until_ns(end_ns);
}

void Aligner::open(std::int64_t t0_ns, bool tick) noexcept {
    open_ = WindowPlan{};
    open_.id = next_id_;
    open_.t0_ns = t0_ns;
    open_.own_from_ns = next_id_ == 0 ? INT64_MIN : t0_ns;
    open_.epoch = epoch_;
    ++next_id_;
    is_open_ = true;
    if (tick) {
        open_.flags |= kTick;
        ++counters_.ticks;
        return;
    }
    open_.frame = queue_[queue_head_].frame;
    open_.has_frame = true;
    queue_head_ = (queue_head_ + 1) % kFrameQueue;
    --queue_count_;
}

bool Aligner::try_open_first(std::int64_t now_ns) noexcept {
    const std::int64_t earliest_ns = this->earliest_ns();
    if (earliest_ns == INT64_MAX) {
        return false;
    }
    const Stream& camera = stream(Kind::Camera);
    const std::int64_t tick_ns = earliest_ns + options_.nominal_period_ns;
    const bool due = is_due(tick_ns, now_ns);
    for (const Kind kind : {Kind::Microphone, Kind::Imu}) {
        const Stream& s = stream(kind);
        if (s.present && !s.begun && !s.ended && !due) {
            return false;  // it may yet begin before the others
        }
    }
    if (queue_count_ > 0) {
        const std::int64_t frame_ns = queue_[queue_head_].hub_ns;
        const bool tick = frame_ns - earliest_ns >= options_.nominal_period_ns;
        open(tick ? earliest_ns : frame_ns, tick);
        return true;
    }
    if (!camera.present || camera.ended || camera.watermark_ns >= tick_ns || due) {
        open(earliest_ns, true);
        return true;
    }
    return false;
}

Aligner::Boundary Aligner::find_boundary(std::int64_t now_ns) const noexcept {
    const Stream& camera = stream(Kind::Camera);
    // A tick's window lasts one nominal period; a frame's may last longer, for a dropped frame or a slower rate.
    const std::int64_t longest_ns =
        (open_.flags & kTick) != 0 ? options_.nominal_period_ns : options_.longest_window_ns;
    const std::int64_t limit_ns = open_.t0_ns + longest_ns;
    const std::int64_t tick_ns = open_.t0_ns + options_.nominal_period_ns;

    Boundary found;
    if (queue_count_ > 0) {
        const std::int64_t frame_ns = queue_[queue_head_].hub_ns;
        found = frame_ns <= limit_ns ? Boundary{.t1_ns = frame_ns, .known = true}
                                     : Boundary{.t1_ns = tick_ns, .known = true, .tick = true};
    } else if (all_ended()) {
        found = {.t1_ns = tick_ns, .known = true, .tick = true, .last = horizon_ns() < tick_ns};
    } else if (!camera.present || camera.ended || camera.watermark_ns > limit_ns || is_due(tick_ns, now_ns)) {
        found = {.t1_ns = tick_ns, .known = true, .tick = true};
    }
    if (!epoch_pending_) {
        return found;
    }
    if (found.known && epoch_at_ns_ == found.t1_ns) {
        found.epoch = true;
    } else if (found.known ? epoch_at_ns_ < found.t1_ns : camera.watermark_ns > epoch_at_ns_) {
        // The last window is not cut: nothing follows it.
        found = found.last ? Boundary{.t1_ns = found.t1_ns, .known = true, .tick = true, .epoch = true, .last = true}
                           : Boundary{.t1_ns = epoch_at_ns_, .known = true, .tick = true, .epoch = true};
    }
    return found;
}

std::uint32_t Aligner::missing_flags(std::int64_t t1_ns) const noexcept {
    std::uint32_t flags = 0;
    const Stream& audio = stream(Kind::Microphone);
    const Stream& imu = stream(Kind::Imu);
    // An ended stream lacks something here only if it ended before this window.
    if (audio.present && audio.watermark_ns < (audio.ended ? open_.t0_ns : t1_ns + kMelHalf_ns)) {
        flags |= kPartialAudio;
    }
    if (imu.present && imu.watermark_ns < (imu.ended ? open_.t0_ns : t1_ns)) {
        flags |= kImuGap;
    }
    return flags;
}

Status Aligner::poll(std::int64_t now_ns, WindowPlan& plan) noexcept {
    if (finished_) {
        return Status::Ended;
    }
    if (!is_open_ && !try_open_first(now_ns)) {
        finished_ = all_ended();
        return finished_ ? Status::Ended : Status::Again;
    }
    const Boundary boundary = find_boundary(now_ns);
    if (!boundary.known) {
        return Status::Again;
    }
    const std::uint32_t missing = missing_flags(boundary.t1_ns);
    const Stream& audio = stream(Kind::Microphone);
    const Stream& imu = stream(Kind::Imu);
    const bool waits = ((missing & kPartialAudio) != 0 && !audio.ended) || ((missing & kImuGap) != 0 && !imu.ended);
    if (waits && !is_due(boundary.t1_ns, now_ns)) {
        return Status::Again;
    }
    const bool guessed = boundary.tick && !boundary.epoch && !boundary.last && queue_count_ == 0 &&
                         stream(Kind::Camera).present && !stream(Kind::Camera).ended &&
                         stream(Kind::Camera).watermark_ns <= boundary.t1_ns;
    open_.t1_ns = boundary.t1_ns;
    open_.own_to_ns = boundary.last ? INT64_MAX : boundary.t1_ns;
    open_.last = boundary.last;
    open_.flags |= missing;
    open_.flags |= boundary.epoch ? kEpoch : 0U;
    open_.flags |= stream(Kind::Camera).present && !open_.has_frame ? kMissingVideo : 0U;
    open_.close_reason = boundary.last        ? CloseReason::End
                         : (waits || guessed) ? CloseReason::Deadline
                                              : CloseReason::Complete;
    open_.added_latency_ns = options_.live ? std::max<std::int64_t>(now_ns - boundary.t1_ns, 0) : 0;
    plan = open_;
    ++counters_.windows;
    counters_.deadline_closes += open_.close_reason == CloseReason::Deadline ? 1 : 0;
    is_open_ = false;
    finished_ = boundary.last;
    if (boundary.epoch) {
        epoch_ = pending_epoch_;
        epoch_pending_ = false;
    }
    if (!finished_) {
        open(boundary.t1_ns, boundary.tick);
    }
    return Status::Ok;
}

std::int64_t Aligner::next_deadline_ns() const noexcept {
    if (!options_.live || finished_) {
        return INT64_MAX;
    }
    if (!is_open_) {
        const std::int64_t earliest_ns = this->earliest_ns();
        return earliest_ns == INT64_MAX ? INT64_MAX : wait_until_ns(earliest_ns + options_.nominal_period_ns);
    }
    const Boundary boundary = find_boundary(INT64_MIN);
    return wait_until_ns(boundary.known ? boundary.t1_ns : open_.t0_ns + options_.nominal_period_ns);
}

Status Aligner::admit(Kind kind, std::int64_t hub_ns) noexcept {
    if (finished_ || (is_open_ && hub_ns < open_.own_from_ns)) {
        ++counters_.late_items[sensor::index_of(kind)];
        return Status::Late;
    }
    return Status::Ok;
}

Status Aligner::drain_frame(sensor::Sample& frame) noexcept {
    if (is_open_ && open_.has_frame) {
        frame = open_.frame;
        open_.has_frame = false;
        return Status::Ok;
    }
    if (queue_count_ == 0) {
        return Status::Again;
    }
    frame = queue_[queue_head_].frame;
    queue_head_ = (queue_head_ + 1) % kFrameQueue;
    --queue_count_;
    return Status::Ok;
}

}  // namespace perceptd::sync
