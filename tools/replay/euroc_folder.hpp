// Reader of an EuRoC/ASL folder: cam0 or cam1 (grey PNG or JPEG), imu0, and our mic0 (WAV with time anchors).
// Owns the tables of the three sensors and the image it last decoded.
// Never reads outside the folder: image names with a path in them are refused.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "recording.hpp"

namespace perceptd::replay {

/// Opens `folder`, or its `mav0` if there is one. A sensor whose folder is missing is absent. Layout:
///   cam0/data.csv  #timestamp [ns],filename           images in cam0/data/, all of one size
///   imu0/data.csv  #timestamp [ns],w_x,w_y,w_z [rad/s],a_x,a_y,a_z [m/s^2]
///   mic0/data.csv  #timestamp [ns],first_sample       anchors: sample `first_sample` of mic0/data.wav was taken then
/// All tables and image names are checked here, pixels when they are played. Throws RecordingError with file and line.
/// `camera` is the folder of the camera to play: "cam0", "cam1".
[[nodiscard]] std::unique_ptr<Recording> open_euroc_folder(const std::filesystem::path& folder,
                                                           const std::string& camera);

}  // namespace perceptd::replay
