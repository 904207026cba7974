#include "base/log.hpp"

#define SD_JOURNAL_SUPPRESS_LOCATION  // this file's name would be said of every message

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
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

bool to_journal_now = false;

int syslog_priority(Level level) noexcept {
    switch (level) {
        case Level::Debug: return LOG_DEBUG;
        case Level::Info: return LOG_INFO;
        case Level::Warning: return LOG_WARNING;
        case Level::Error: return LOG_ERR;
    }
    return LOG_INFO;
}

void send_to_journal(Level level, std::string_view category, std::string_view text, const char* message_id) {
    std::array<std::string, 5> fields{"MESSAGE=", "PRIORITY=" + std::to_string(syslog_priority(level)),
                                      "SYSLOG_IDENTIFIER=perceptd", "PERCEPTD_CATEGORY=", "MESSAGE_ID="};
    fields[0].append(category).append(": ").append(text);
    fields[3].append(category);
    int count = 4;
    if (message_id != nullptr) {
        fields[4].append(message_id);
        ++count;
    }
    std::array<iovec, 5> parts{};
    for (std::size_t i = 0; i < parts.size(); ++i) {
        parts[i] = {fields[i].data(), fields[i].size()};
    }
    static_cast<void>(::sd_journal_sendv(parts.data(), count));
}

void put(Level level, std::string_view category, std::string_view text, const char* message_id) {
    if (!to_journal_now) {
        logger()->log(spdlog_level(level), "{}: {}", category, text);
    } else if (logger()->should_log(spdlog_level(level))) {
        send_to_journal(level, category, text, message_id);
    }
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

bool journal_listens() noexcept {
    // systemd names the stream that it connected; stderr may have been turned elsewhere since.
    const char* const stream = std::getenv("JOURNAL_STREAM");
    struct stat status {};
    if (stream == nullptr || ::fstat(STDERR_FILENO, &status) != 0) {
        return false;
    }
    char* end = nullptr;
    const unsigned long long device = std::strtoull(stream, &end, 10);
    return *end == ':' && device == status.st_dev && std::strtoull(end + 1, nullptr, 10) == status.st_ino;
}

void open(Level lowest, bool to_journal) {
    to_journal_now = to_journal;
    logger()->set_pattern("%H:%M:%S.%e %L %v");
    set_level(lowest);
}

void set_level(Level lowest) noexcept {
    logger()->set_level(spdlog_level(lowest));
}

void write(Level level, std::string_view category, std::string_view text) {
    put(level, category, text, nullptr);
}

void write(Message message, Level level, std::string_view category, std::string_view text) {
    put(level, category, text, kCatalogue[static_cast<std::size_t>(message)].id);
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
