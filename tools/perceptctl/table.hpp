// A table for people: columns as wide as their widest cell.
// Owns its cells.
// Never wraps or cuts a cell.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace perceptctl {

class Table {
public:
    explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
    [[nodiscard]] std::size_t row_count() const noexcept { return rows_.size() - 1; }
    /// Lines without trailing blanks.
    [[nodiscard]] std::string to_text() const;

private:
    std::vector<std::vector<std::string>> rows_;  ///< the header first
};

}  // namespace perceptctl
