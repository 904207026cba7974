// The held text is short, so it is searched anew each time.
#include "generate/stop_strings.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "model/utf8.hpp"

namespace perceptd::generate {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
    if (stops_.size() > kCountMax) {
        throw Error(ErrorCode::InvalidArgument, std::to_string(stops_.size()) + " stop strings; at most " +
                                                    std::to_string(kCountMax) + " are watched for");
    }
    for (const std::string& stop : stops_) {
        if (stop.empty() || stop.size() > kBytesMax || !model::is_utf8(stop)) {
            throw Error(ErrorCode::InvalidArgument, "a stop string of " + std::to_string(stop.size()) +
                                                        " bytes; it must be UTF-8 of 1 to " +
                                                        std::to_string(kBytesMax) + " bytes");
        }
    }
}

std::string StopStrings::push(std::string_view text) {
    if (is_found_) {
        return {};
    }
    held_ += text;
    std::size_t sure = held_.size();
    for (const std::string& stop : stops_) {
        const std::size_t place = held_.find(stop);
        if (place != std::string::npos) {
            is_found_ = true;
            sure = std::min(sure, place);
        }
    }
    if (is_found_) {
        held_.resize(sure);
        return std::exchange(held_, {});
    }
    for (const std::string& stop : stops_) {
        for (std::size_t length = std::min(stop.size() - 1, held_.size()); length > held_.size() - sure; --length) {
            if (held_.ends_with(std::string_view(stop).substr(0, length))) {
                sure = held_.size() - length;
                break;
            }
        }
    }
    std::string given = held_.substr(0, sure);
    held_.erase(0, sure);
    return given;
}

std::string StopStrings::finish() {
    return std::exchange(held_, {});
}

}  // namespace perceptd::generate
