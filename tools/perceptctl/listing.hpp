// `perceptctl status`, `sensors`, `sessions` and `config`: what the daemon says of itself, once.
// Owns nothing.
// Never watches: a second look is a second call.
#pragma once

#include <string>

namespace perceptctl {

struct ListingOptions {
    std::string bus = "system";  ///< "system", "session" or a D-Bus address
    bool json = false;
};

/// Each prints to standard output and gives back the exit status. Throws std::runtime_error of one sentence.
int show_status(const ListingOptions& options);
int show_sensors(const ListingOptions& options);
int show_sessions(const ListingOptions& options);
int show_config(const ListingOptions& options);

}  // namespace perceptctl
