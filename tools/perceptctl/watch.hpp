// `perceptctl watch`: one line per window, a summary at the end.
// Owns the client for the time of the run.
// Never holds more than one window.
#pragma once

#include <cstdint>
#include <string>

namespace perceptctl {

struct WatchOptions {
    std::string socket_path;
    std::string sensors = "camera,microphone,imu";
    bool json = false;          ///< one JSON object per line instead of text
    bool summary_only = false;  ///< nothing per window
    bool until_end = false;     ///< a stream that breaks off before its end is an error
    std::uint64_t count = 0;    ///< windows to show; 0 = no limit
};

/// Runs until the count, the stream's end, or Ctrl-C; gives back the exit status. Throws percept::Error.
int watch(const WatchOptions& options);

}  // namespace perceptctl
