// A model package: a folder with manifest.json. Owns a descriptor of the folder and the manifest. Never follows a
// symbolic link, never leaves the folder, never uses a file whose digest was taken from another descriptor.
#pragma once

#include <string>

#include "base/unique_fd.hpp"
#include "model/manifest.hpp"
#include "model/model_file.hpp"

namespace perceptd::model {

/// Move-only; set-up only (file I/O).
class Package {
public:
    /// Opens `folder` and reads its manifest; every listed file must be there, with its size. Folder and files must
    /// belong to root or to this process's user, and others must not be able to write them. Throws std::system_error or
    /// Error(InvalidArgument or NotAuthorized).
    [[nodiscard]] static Package open(const std::string& folder);

    [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
    [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }
    /// Of the manifest's text: two packages with the same one have the same files.
    [[nodiscard]] const Digest& manifest_digest() const noexcept { return manifest_digest_; }

    /// The file `path` of the manifest, hashed through the very mapping that is given back. Reads all of it: not on a
    /// thread that must answer. Throws Error(InvalidArgument) when the digest or size differs, Error(NotFound) for a
    /// path that the manifest does not list.
    [[nodiscard]] ModelFile open_file(const std::string& path, Backing backing) const;

private:
    Package() = default;
    [[nodiscard]] UniqueFd open_inside(const std::string& path) const;

    std::string folder_;
    UniqueFd folder_fd_;
    Manifest manifest_;
    Digest manifest_digest_{};
};

}  // namespace perceptd::model
