// Logging by category: to the journal with fields when it listens, else to stderr. Main thread writes;
// real-time threads leave fixed records in a ring that the main thread drains. The only file that knows spdlog.
#pragma once

#include <cstdint>
#include <string_view>

namespace perceptd::log {

enum class Level : std::uint8_t { Debug, Info, Warning, Error };

/// Sets the lowest level that is written, and the sink. Main thread, once.
void open(Level lowest, bool to_journal);
void set_level(Level lowest) noexcept;

/// Writes one line. Never from a hot thread. `category` is the folder's name.
void write(Level level, std::string_view category, std::string_view text);

inline void debug(std::string_view category, std::string_view text) {
    write(Level::Debug, category, text);
}
inline void info(std::string_view category, std::string_view text) {
    write(Level::Info, category, text);
}
inline void warning(std::string_view category, std::string_view text) {
    write(Level::Warning, category, text);
}
inline void error(std::string_view category, std::string_view text) {
    write(Level::Error, category, text);
}

/// Leaves a record for the main thread. Real-time safe; `format_literal` must be a string literal that prints up
/// to two integers with {}. Lost records are counted and reported by drain().
void from_hot_path(Level level, const char* category_literal, const char* format_literal, std::int64_t a = 0,
                   std::int64_t b = 0) noexcept;
/// Writes what real-time threads left. Main thread.
void drain();

}  // namespace perceptd::log
