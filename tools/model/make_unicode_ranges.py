#!/usr/bin/env python3
"""Makes daemon/model/unicode_ranges.hpp: runs of letters (L*), numbers (N*) and White_Space from Python's unicodedata.

Run: /usr/bin/python3 tools/model/make_unicode_ranges.py > daemon/model/unicode_ranges.hpp
"""
import unicodedata

# The White_Space property is not in unicodedata; the standard lists 25 characters and has not changed since 2014.
SPACES = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}


def kind(value):
    if value in SPACES:
        return 3
    return {"L": 1, "N": 2}.get(unicodedata.category(chr(value))[0], 0)


runs, value = [], 0x80
while value < 0x110000:
    first, what = value, kind(value)
    while value < 0x110000 and kind(value) == what:
        value += 1
    if what:
        runs.append((first, value - first, what))

print(f"// Unicode {unicodedata.unidata_version}, made by tools/model/make_unicode_ranges.py; do not edit.")
print("#pragma once\n\n#include <cstdint>\n\nnamespace perceptd::model {\n")
print("struct UnicodeRange {\n    char32_t first;\n    std::uint32_t count : 24;\n    std::uint32_t kind : 8;"
      "  ///< 1 letter, 2 number, 3 space\n};\n")
print("// clang-format off\ninline constexpr UnicodeRange kUnicodeRanges[] = {")
line = ""
for run in runs:
    item = "{0x%x,%d,%d}," % run
    if len(line) + len(item) > 170:
        print(line)
        line = ""
    line += item
print(line + "\n};\n// clang-format on\n\n}  // namespace perceptd::model")
