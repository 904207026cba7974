// Paths are walked part by part with O_NOFOLLOW, so that no link anywhere on the way is followed.
#include "model/package.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"

namespace perceptd::model {
namespace {

/// Refuses what somebody else could change after it was checked.
struct stat trusted_status(int fd, const std::string& label) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) {
        throw_errno("fstat", label);
    }
    if (status.st_uid != 0 && status.st_uid != ::geteuid()) {
        throw Error(ErrorCode::NotAuthorized,
                    label + ": belongs to user " + std::to_string(status.st_uid) +
                        "; model files must belong to root or to the daemon's user, use chown");
    }
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        throw Error(ErrorCode::NotAuthorized, label + ": others may write it; use chmod go-w");
    }
    return status;
}

UniqueFd open_step(int folder_fd, const std::string& name, int flags, const std::string& label) {
    UniqueFd fd(::openat(folder_fd, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) {
        throw_errno("open without following links", label);
    }
    return fd;
}

}  // namespace

Package Package::open(const std::string& folder) {
    Package package;
    package.folder_ = folder;
    package.folder_fd_ = open_step(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, folder);
    trusted_status(package.folder_fd_.borrow(), folder);
    const std::string label = folder + "/manifest.json";
    const ModelFile text = ModelFile::adopt(package.open_inside("manifest.json"), label, Backing::SealedCopy);
    package.manifest_digest_ = sha256_of(text.bytes());
    package.manifest_ =
        parse_manifest({reinterpret_cast<const char*>(text.bytes().data()), text.bytes().size()}, label);
    for (const ManifestFile& file : package.manifest_.files) {
        const UniqueFd fd = package.open_inside(file.path);
        const auto size_bytes =
            static_cast<std::uint64_t>(trusted_status(fd.borrow(), folder + "/" + file.path).st_size);
        if (size_bytes != file.size_bytes) {
            throw Error(ErrorCode::InvalidArgument, folder + "/" + file.path + ": " + std::to_string(size_bytes) +
                                                        " bytes; the manifest says " + std::to_string(file.size_bytes));
        }
    }
    return package;
}

UniqueFd Package::open_inside(const std::string& path) const {
    const std::string label = folder_ + "/" + path;
    UniqueFd folder = folder_fd_.duplicate();
    std::size_t start = 0;
    for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', start)) {
        folder = open_step(folder.borrow(), path.substr(start, slash - start), O_RDONLY | O_DIRECTORY, label);
        trusted_status(folder.borrow(), label);
        start = slash + 1;
    }
    UniqueFd file = open_step(folder.borrow(), path.substr(start), O_RDONLY | O_NONBLOCK, label);
    if (!S_ISREG(trusted_status(file.borrow(), label).st_mode)) {
        throw Error(ErrorCode::InvalidArgument, label + ": not a regular file");
    }
    return file;
}

ModelFile Package::open_file(const std::string& path, Backing backing) const {
    const std::string label = folder_ + "/" + path;
    const ManifestFile* const listed = manifest_.find_file(path);
    if (listed == nullptr) {
        throw Error(ErrorCode::NotFound, label + ": the manifest does not list this file");
    }
    ModelFile file = ModelFile::adopt(open_inside(path), label, backing);
    if (file.bytes().size() != listed->size_bytes || sha256_of(file.bytes()) != listed->sha256) {
        throw Error(ErrorCode::InvalidArgument, label +
                                                    ": differs from its manifest; copy the package again, or run "
                                                    "perceptd-model pack if the change is meant");
    }
    return file;
}

}  // namespace perceptd::model
