// Any bytes as a configuration file: refused with file and line in printable text, or settled by the schema's pass.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "configuration_file.hpp"
#include "configuration_schema.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        perceptd::ConfigurationDocument document = perceptd::parse_configuration(text, "fuzz.json");
        perceptd::ConfigurationDocument merged = document;
        perceptd::merge_configuration(merged, document);
        for (const std::string& fault : perceptd::check_configuration(merged)) {
            if (!fault.starts_with("fuzz.json:")) {
                std::abort();
            }
        }
    } catch (const perceptd::Error& error) {
        const std::string reason = error.what();
        if (error.code() != perceptd::ErrorCode::InvalidConfiguration || !reason.starts_with("fuzz.json:")) {
            std::abort();
        }
    }
    return 0;
}
