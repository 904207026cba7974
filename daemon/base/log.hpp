// Logging by category: to the journal with fields when it listens, else to stderr. Main thread writes;
// real-time threads leave fixed records in a ring that the main thread drains. The only file that knows spdlog.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace perceptd::log {

enum class Level : std::uint8_t { Debug, Info, Warning, Error };

/// What systemd/perceptd.catalog explains to an administrator; each goes to the journal with its MESSAGE_ID.
enum class Message : std::uint8_t {
    Started,
    Stopping,
    ReloadFailed,
    Reloaded,
    SessionDropped,
    HeapFallback,
    SensorSilent
};

struct CataloguedMessage {
    Message message;
    const char* name;
    const char* id;  ///< 32 hexadecimal digits, for ever
};

inline constexpr std::array<CataloguedMessage, 7> kCatalogue{{
    {Message::Started, "Started", "90f011255550466a80e07817f3abff09"},
    {Message::Stopping, "Stopping", "2bc36df7c5524e51b4897affd86177c7"},
    {Message::ReloadFailed, "ReloadFailed", "ed332a92a5624bd5b00e1f6c4e4aadc4"},
    {Message::Reloaded, "Reloaded", "7497b1a3850a43269c210fda25bb0571"},
    {Message::SessionDropped, "SessionDropped", "764362577d984b6385417becac0d397f"},
    {Message::HeapFallback, "HeapFallback", "5c4ab9fe3f1142fda49754e0231751d2"},
    {Message::SensorSilent, "SensorSilent", "41a8922a01b8404e80f04ed83db312cf"},
}};

/// True when stderr is the journal's stream, so that fields get through. Any thread.
bool journal_listens() noexcept;

/// Sets the lowest level that is written, and the sink. Main thread, once.
void open(Level lowest, bool to_journal);
void set_level(Level lowest) noexcept;

/// Writes one line. Never from a hot thread. `category` is the folder's name.
void write(Level level, std::string_view category, std::string_view text);

/// The same with the message's MESSAGE_ID when the journal listens.
void write(Message message, Level level, std::string_view category, std::string_view text);

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
