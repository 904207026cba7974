#include "base/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/systemd_sink.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>

namespace perceptd::log {
namespace {

struct HotRecord {
    std::atomic<bool> ready{false};
    Level level = Level::Info;
    const char* category = "";
    const char* format = "";
    std::int64_t a = 0;
    std::int64_t b = 0;
};

// Many hot threads, one reader: each writer claims an index; a full ring counts the loss instead of waiting.
constexpr std::size_t kHotRecords = 256;
std::array<HotRecord, kHotRecords> hot_records;
std::atomic<std::uint64_t> hot_tail{0};
std::atomic<std::uint64_t> hot_head{0};
std::atomic<std::uint64_t> hot_lost{0};

std::shared_ptr<spdlog::logger>& logger() {
    static auto instance =
        std::make_shared<spdlog::logger>("perceptd", std::make_shared<spdlog::sinks::stderr_color_sink_st>());
    return instance;
}

spdlog::level::level_enum spdlog_level(Level level) noexcept {
    switch (level) {
        case Level::Debug: return spdlog::level::debug;
        case Level::Info: return spdlog::level::info;
        case Level::Warning: return spdlog::level::warn;
        case Level::Error: return spdlog::level::err;
    }
    return spdlog::level::info;
}

std::string printed(const HotRecord& record) {
    std::string text = record.format;
    for (const std::int64_t number : {record.a, record.b}) {
        if (const auto at = text.find("{}"); at != std::string::npos) {
            text.replace(at, 2, std::to_string(number));
        }
    }
    return text;
}

}  // namespace

void open(Level lowest, bool to_journal) {
    if (to_journal) {
        logger() =
            std::make_shared<spdlog::logger>("perceptd", std::make_shared<spdlog::sinks::systemd_sink_st>("perceptd"));
    }
    logger()->set_pattern(to_journal ? "%v" : "%H:%M:%S.%e %L %v");
    set_level(lowest);
}

void set_level(Level lowest) noexcept {
    logger()->set_level(spdlog_level(lowest));
}

void write(Level level, std::string_view category, std::string_view text) {
    logger()->log(spdlog_level(level), "{}: {}", category, text);
}

void from_hot_path(Level level, const char* category_literal, const char* format_literal, std::int64_t a,
                   std::int64_t b) noexcept {
    std::uint64_t tail = hot_tail.load(std::memory_order_relaxed);
    do {
        if (tail - hot_head.load(std::memory_order_acquire) >= kHotRecords) {
            hot_lost.fetch_add(1, std::memory_order_relaxed);
            return;
        }
    } while (!hot_tail.compare_exchange_weak(tail, tail + 1, std::memory_order_acq_rel));
    HotRecord& record = hot_records[tail % kHotRecords];
    record.level = level;
    record.category = category_literal;
    record.format = format_literal;
    record.a = a;
    record.b = b;
    record.ready.store(true, std::memory_order_release);
}

void drain() {
    for (std::uint64_t head = hot_head.load(std::memory_order_relaxed);; ++head) {
        HotRecord& record = hot_records[head % kHotRecords];
        if (!record.ready.load(std::memory_order_acquire)) {
            break;
        }
        write(record.level, record.category, printed(record));
        record.ready.store(false, std::memory_order_relaxed);
        hot_head.store(head + 1, std::memory_order_release);
    }
    if (const std::uint64_t lost = hot_lost.exchange(0, std::memory_order_relaxed); lost > 0) {
        write(Level::Warning, "base", std::to_string(lost) + " log records of real-time threads were lost");
    }
}

}  // namespace perceptd::log
