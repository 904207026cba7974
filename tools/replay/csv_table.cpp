#include "csv_table.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>

#include "recording.hpp"

namespace perceptd::replay {
namespace {

constexpr std::size_t line_bytes_max = 4096;

std::string trimmed(std::string_view text) {
    constexpr std::string_view blanks = " \t\r";
    const auto first = text.find_first_not_of(blanks);
    if (first == std::string_view::npos) {
        return {};
    }
    return std::string(text.substr(first, text.find_last_not_of(blanks) - first + 1));
}

template <typename Number>
bool parse(std::string_view text, Number& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

CsvTable::CsvTable(const std::filesystem::path& path, std::size_t column_count) : path_(path.string()) {
    std::ifstream file(path);
    if (!file) {
        throw RecordingError(path_ + ": cannot be opened; an EuRoC sensor folder needs its data.csv");
    }
    std::string text;
    for (std::size_t line = 1; std::getline(file, text); ++line) {
        const std::string content = trimmed(text);
        if (content.empty() || content.front() == '#') {
            continue;
        }
        rows_.push_back({line, 0, {}});
        const std::size_t row = rows_.size() - 1;
        if (content.size() > line_bytes_max) {
            fail(row, "the line is longer than 4096 bytes");
        }
        for (std::size_t begin = 0; begin <= content.size();) {
            const std::size_t end = std::min(content.find(',', begin), content.size());
            rows_[row].fields.push_back(trimmed(std::string_view(content).substr(begin, end - begin)));
            begin = end + 1;
        }
        if (rows_[row].fields.size() != column_count) {
            fail(row, "has " + std::to_string(rows_[row].fields.size()) + " fields instead of " +
                          std::to_string(column_count));
        }
        rows_[row].time_ns = count(row, 0);
        if (row > 0 && rows_[row].time_ns <= rows_[row - 1].time_ns) {
            const bool same = rows_[row].time_ns == rows_[row - 1].time_ns;
            fail(row, "timestamp " + rows_[row].fields[0] + (same ? " repeats line " : " is earlier than line ") +
                          std::to_string(rows_[row - 1].line) + "; sort the rows by time, each time once");
        }
    }
    if (file.bad()) {
        throw RecordingError(path_ + ": cannot be read to the end; copy it again");
    }
    if (rows_.empty()) {
        throw RecordingError(path_ + ": has no rows; remove the sensor's folder if it recorded nothing");
    }
}

float CsvTable::number(std::size_t row, std::size_t column) const {
    double value = 0;
    if (!parse(rows_[row].fields[column], value) || !std::isfinite(float(value))) {
        fail(row, "field " + std::to_string(column + 1) + " is '" + rows_[row].fields[column] +
                      "' instead of a number; correct the row");
    }
    return float(value);
}

std::int64_t CsvTable::count(std::size_t row, std::size_t column) const {
    std::int64_t value = 0;
    if (!parse(rows_[row].fields[column], value) || value < 0) {
        fail(row, "field " + std::to_string(column + 1) + " is '" + rows_[row].fields[column] +
                      "' instead of a whole number from 0 up; correct the row");
    }
    return value;
}

double CsvTable::rate_hz() const noexcept {
    if (rows_.size() < 2) {
        return 0.0;
    }
    return double(rows_.size() - 1) * 1e9 / double(rows_.back().time_ns - rows_.front().time_ns);
}

void CsvTable::fail(std::size_t row, const std::string& reason) const {
    throw RecordingError(path_ + ":" + std::to_string(rows_[row].line) + ": " + reason);
}

}  // namespace perceptd::replay
