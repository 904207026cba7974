// Reads and merges configuration files. Line numbers come from an iterator that counts lines while nlohmann's
// parser pulls characters through it, because the parser itself reports a position only for syntax errors.
#include "configuration_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/unique_fd.hpp"

namespace perceptd {
namespace {

using nlohmann::json;

constexpr std::size_t kFileMaxBytes = 1U << 20U;
constexpr std::size_t kDepthMax = 16;  // the schema needs 3; the rest only bounds recursion

[[noreturn]] void fail(const std::string& file, int line, const std::string& reason) {
    throw Error(ErrorCode::InvalidConfiguration, file + ":" + std::to_string(line) + ": " + reason);
}

/// The parser quotes what it read, which may be any bytes: a log wants text.
std::string printable(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) - 0x20U >= 0x5fU; }, '?');
    return text;
}

struct LineCounter {
    int line = 1;
    int token_line = 1;  // of the last character that is not white space
};

/// An input iterator that counts the lines it has passed.
class CountingIterator {
public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;

    CountingIterator(const char* at, LineCounter* counter) noexcept : at_(at), counter_(counter) {}

    reference operator*() const noexcept { return *at_; }
    CountingIterator& operator++() noexcept {
        // A number ends at the character after it, which the lexer has then read already: white space must not move
        // the token's line, and anything else stands on the number's own line.
        if (*at_ == '\n') {
            ++counter_->line;
        } else if (*at_ != ' ' && *at_ != '\t' && *at_ != '\r') {
            counter_->token_line = counter_->line;
        }
        ++at_;
        return *this;
    }
    CountingIterator operator++(int) noexcept {
        const CountingIterator before = *this;
        ++*this;
        return before;
    }
    bool operator==(const CountingIterator& other) const noexcept { return at_ == other.at_; }
    bool operator!=(const CountingIterator& other) const noexcept { return at_ != other.at_; }

private:
    const char* at_;
    LineCounter* counter_;
};

/// Builds the document and notes where each value stands.
class DocumentBuilder final : public nlohmann::json_sax<json> {
public:
    DocumentBuilder(std::string file, const LineCounter& counter) : file_(std::move(file)), counter_(counter) {}

    bool null() override { return add(nullptr); }
    bool boolean(bool value) override { return add(value); }
    bool number_integer(number_integer_t value) override { return add(value); }
    bool number_unsigned(number_unsigned_t value) override { return add(value); }
    bool number_float(number_float_t value, const string_t&) override { return add(value); }
    bool string(string_t& value) override { return add(std::move(value)); }
    bool binary(binary_t&) override { return false; }
    bool start_object(std::size_t) override { return open(json::object()); }
    bool start_array(std::size_t) override { return open(json::array()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }

    bool key(string_t& name) override {
        Frame& top = frames_.back();
        if (top.value->contains(name)) {
            fail(file_, counter_.token_line, child_pointer(top.pointer, name) + ": written twice in this file");
        }
        top.key = std::move(name);
        return true;
    }

    bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
        std::string text = printable(error.what());
        // "[json.exception...] parse error at line 1, column 2: reason": only the reason is for people.
        if (const auto bracket = text.find("] "); bracket != std::string::npos) {
            text.erase(0, bracket + 2);
        }
        if (const auto colon = text.find(": "); text.starts_with("parse error") && colon != std::string::npos) {
            text.erase(0, colon + 2);
        }
        fail(file_, counter_.token_line, text);
    }

    ConfigurationDocument take() { return std::move(document_); }

private:
    struct Frame {
        json* value;
        std::string pointer;
        std::string key;
    };

    bool add(json value) {
        place(std::move(value));
        return true;
    }
    bool open(json value) {
        if (frames_.size() >= kDepthMax) {
            fail(file_, counter_.token_line, "nested deeper than " + std::to_string(kDepthMax) + " levels");
        }
        frames_.push_back(place(std::move(value)));
        return true;
    }
    bool close() {
        frames_.pop_back();
        return true;
    }
    Frame place(json value) {
        Frame placed{&document_.value, "", ""};
        if (frames_.empty()) {
            document_.value = std::move(value);
        } else if (Frame& top = frames_.back(); top.value->is_array()) {
            placed.pointer = child_pointer(top.pointer, std::to_string(top.value->size()));
            top.value->push_back(std::move(value));
            placed.value = &top.value->back();
        } else {
            placed.pointer = child_pointer(top.pointer, top.key);
            placed.value = &(*top.value)[top.key];
            *placed.value = std::move(value);
        }
        document_.origins[placed.pointer] = {file_, counter_.token_line};
        return placed;
    }

    std::string file_;
    const LineCounter& counter_;
    ConfigurationDocument document_;
    std::vector<Frame> frames_;
};

bool is_inside(const std::string& pointer, const std::string& ancestor) {
    return pointer.starts_with(ancestor) && (pointer.size() == ancestor.size() || pointer[ancestor.size()] == '/');
}

void merge_at(const std::string& pointer, json& target, const json& patch, ConfigurationDocument& base,
              const ConfigurationDocument& from) {
    for (const auto& [name, wanted] : patch.items()) {
        const std::string child = child_pointer(pointer, name);
        json& kept = target[name];
        if (!wanted.is_object() || !kept.is_object()) {
            std::erase_if(base.origins, [&](const auto& entry) { return is_inside(entry.first, child); });
            kept = wanted.is_object() ? json::object() : wanted;
        }
        if (wanted.is_object()) {
            base.origins[child] = from.origins.at(child);
            merge_at(child, kept, wanted, base, from);
            continue;
        }
        for (const auto& [inner, origin] : from.origins) {
            if (is_inside(inner, child)) {
                base.origins[inner] = origin;
            }
        }
    }
}

[[noreturn]] void fail_to_read(const std::string& path, int error) {
    throw Error(ErrorCode::InvalidConfiguration, path + ": cannot be read: " + std::generic_category().message(error));
}

/// The text of `path`; empty when there is no such file.
std::optional<std::string> read_text(const std::string& path) {
    // O_NONBLOCK: opening a FIFO that somebody put there must not stop the daemon.
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd) {
        if (errno == ENOENT || errno == ENOTDIR) {
            return std::nullopt;
        }
        fail_to_read(path, errno);
    }
    struct stat status {};
    if (::fstat(fd.borrow(), &status) != 0) {
        fail_to_read(path, errno);
    }
    if (!S_ISREG(status.st_mode)) {
        fail_to_read(path, S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
    }
    std::string text;
    std::string chunk(65536, '\0');
    for (;;) {
        const ssize_t got = ::read(fd.borrow(), chunk.data(), chunk.size());
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            fail_to_read(path, errno);
        }
        if (got == 0) {
            return text;
        }
        text.append(chunk, 0, static_cast<std::size_t>(got));
        if (text.size() > kFileMaxBytes) {
            fail_to_read(path, EFBIG);
        }
    }
}

std::vector<std::string> drop_ins_of(const std::string& folder) {
    std::vector<std::string> paths;
    std::error_code error;
    std::filesystem::directory_iterator entries(folder, error);
    for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
        const std::string name = entries->path().filename().string();
        if (name.ends_with(".json") && !name.starts_with(".")) {
            paths.push_back(folder + "/" + name);
        }
    }
    if (error && error.value() != ENOENT && error.value() != ENOTDIR) {
        fail_to_read(folder, error.value());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
}

}  // namespace

std::string child_pointer(const std::string& pointer, std::string_view key) {
    std::string child = pointer + "/";
    for (const char c : key) {
        if (c == '~') {
            child += "~0";
        } else if (c == '/') {
            child += "~1";
        } else {
            child += c;
        }
    }
    return child;
}

ConfigurationDocument parse_configuration(std::string_view text, const std::string& file) {
    LineCounter counter;
    DocumentBuilder builder(file, counter);
    const char* const begin = text.data();
    const bool is_parsed =
        json::sax_parse(CountingIterator(begin, &counter), CountingIterator(begin + text.size(), &counter), &builder,
                        nlohmann::detail::input_format_t::json, true, true);
    if (!is_parsed) {
        fail(file, counter.token_line, "not JSON");
    }
    ConfigurationDocument document = builder.take();
    if (!document.value.is_object()) {
        fail(file, document.origins[""].line, "the whole must be an object: { ... }");
    }
    return document;
}

void merge_configuration(ConfigurationDocument& base, const ConfigurationDocument& patch) {
    merge_at("", base.value, patch.value, base, patch);
}

ConfigurationDocument read_configuration_layers(const std::string& root) {
    if (!root.empty() && !std::filesystem::is_directory(root)) {
        throw Error(ErrorCode::InvalidConfiguration,
                    root + ": is no folder; --root names the one that holds etc/perceptd");
    }
    std::vector<std::string> paths{root + "/usr/share/perceptd/perceptd.json", root + "/etc/perceptd/perceptd.json"};
    const std::size_t fixed_count = paths.size();
    for (std::string& path : drop_ins_of(root + "/etc/perceptd/conf.d")) {
        paths.push_back(std::move(path));
    }
    ConfigurationDocument merged;
    for (std::size_t i = 0; i < paths.size(); ++i) {
        const std::optional<std::string> text = read_text(paths[i]);
        if (text) {
            merge_configuration(merged, parse_configuration(*text, paths[i]));
        } else if (i >= fixed_count) {
            // It was listed a moment ago: a dangling link, which an administrator wants to hear about.
            fail_to_read(paths[i], ENOENT);
        }
    }
    return merged;
}

}  // namespace perceptd
