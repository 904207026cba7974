// The `data.csv` files of EuRoC/ASL folders: comma-separated rows, '#' lines skipped, LF or CRLF line ends.
// Owns the text; every row remembers its line for messages.
// Never guesses: a row with a wrong number of fields, or times that do not increase, is an error naming file and line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace perceptd::replay {

class CsvTable {
public:
    /// Reads a table whose first column is a strictly increasing timestamp [ns]. Throws RecordingError.
    CsvTable(const std::filesystem::path& path, std::size_t column_count);

    [[nodiscard]] std::size_t row_count() const noexcept { return rows_.size(); }
    [[nodiscard]] std::int64_t time_ns(std::size_t row) const noexcept { return rows_[row].time_ns; }
    [[nodiscard]] std::string_view text(std::size_t row, std::size_t column) const { return rows_[row].fields[column]; }
    /// A finite number; throws RecordingError naming the line.
    [[nodiscard]] float number(std::size_t row, std::size_t column) const;
    /// A non-negative integer; throws RecordingError naming the line.
    [[nodiscard]] std::int64_t count(std::size_t row, std::size_t column) const;
    /// Rows per second between the first and the last row; 0 for a single row.
    [[nodiscard]] double rate_hz() const noexcept;

    [[noreturn]] void fail(std::size_t row, const std::string& reason) const;

private:
    struct Row {
        std::size_t line;
        std::int64_t time_ns;
        std::vector<std::string> fields;
    };
    std::string path_;
    std::vector<Row> rows_;
};

}  // namespace perceptd::replay
