// Scanning into a new list, then one swap; records that are loaded move over when their manifest is still the same.
#include "model/catalog.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace perceptd::model {

class Catalog::Record {
public:
    CatalogEntry entry;
    std::optional<Package> package;  // empty: broken
    std::optional<LoadedModel> model;
    std::int64_t last_used_at_ns = 0;

    [[nodiscard]] bool is_same_package(const Record& other) const noexcept {
        return package && other.package && entry.folder == other.entry.folder &&
               package->manifest_digest() == other.package->manifest_digest();
    }
    [[nodiscard]] bool is_prerelease() const noexcept { return !package->manifest().version.prerelease.empty(); }
    void break_with(const std::string& reason) {
        entry.state = PackageState::Broken;
        entry.reason = reason;
        model.reset();
        package.reset();
    }
};

Catalog::Use::Use(Record& record) noexcept : record_(&record) {
    ++record.entry.user_count;
}

Catalog::Use& Catalog::Use::operator=(Use&& other) noexcept {
    std::swap(record_, other.record_);
    return *this;
}

Catalog::Use::~Use() {
    if (record_ != nullptr) {
        --record_->entry.user_count;
        record_->last_used_at_ns = std::max(record_->last_used_at_ns, monotonic_ns());
    }
}

const LoadedModel& Catalog::Use::operator*() const noexcept {
    return *record_->model;
}

Catalog::Catalog(CatalogOptions options) : options_(std::move(options)) {}

Catalog::~Catalog() = default;

void Catalog::scan_folder(const std::string& folder, std::vector<std::unique_ptr<Record>>& found) const {
    constexpr std::size_t kMaxPackageCount = 1024;
    std::vector<std::string> paths;
    std::error_code error;
    for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        if (!at->path().filename().string().starts_with('.') && paths.size() < kMaxPackageCount) {
            paths.push_back(at->path().string());
        }
    }
    if (error && error != std::errc::no_such_file_or_directory) {
        auto record = std::make_unique<Record>();
        record->entry.folder = folder;
        record->break_with(folder + ": " + error.message());
        found.push_back(std::move(record));
    }
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
        auto record = std::make_unique<Record>();
        record->entry.folder = path;
        try {
            record->package.emplace(Package::open(path));
            const Manifest& manifest = record->package->manifest();
            record->entry.name = manifest.name;
            record->entry.version = manifest.version.text;
            record->entry.licence = manifest.licence;
            for (const ManifestFile& file : manifest.files) {
                record->entry.size_bytes += file.size_bytes;
            }
            const auto twin = std::find_if(found.begin(), found.end(), [&](const auto& other) {
                return other->package && other->entry.name == manifest.name &&
                       other->package->manifest().version == manifest.version;
            });
            if (twin != found.end()) {
                record->break_with("the same name and version as " + (*twin)->entry.folder);
            }
        } catch (const std::exception& problem) {
            record->break_with(problem.what());
        }
        found.push_back(std::move(record));
    }
}

std::size_t Catalog::scan() {
    std::vector<std::unique_ptr<Record>> found;
    for (const std::string& folder : options_.folders) {
        scan_folder(folder, found);
    }
    for (auto& old : records_) {
        const auto same =
            std::find_if(found.begin(), found.end(), [&](const auto& fresh) { return fresh->is_same_package(*old); });
        if (same != found.end()) {
            same->swap(old);
            continue;
        }
        // What was said of a name and version holds for the package that now has them.
        for (const auto& fresh : found) {
            if (fresh->package && old->entry.name == fresh->entry.name && old->entry.version == fresh->entry.version) {
                fresh->entry.is_pinned = old->entry.is_pinned;
                fresh->entry.is_active = old->entry.is_active;
            }
        }
        if (old->entry.user_count > 0) {
            retired_.push_back(std::move(old));
        }
    }
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
        if (a->package.has_value() != b->package.has_value()) {
            return a->package.has_value();
        }
        if (!a->package || a->entry.name != b->entry.name) {
            return a->package ? a->entry.name < b->entry.name : a->entry.folder < b->entry.folder;
        }
        return a->package->manifest().version > b->package->manifest().version;
    });
    records_ = std::move(found);
    return static_cast<std::size_t>(
        std::count_if(records_.begin(), records_.end(), [](const auto& record) { return !record->package; }));
}

std::vector<CatalogEntry> Catalog::list() const {
    std::vector<CatalogEntry> entries;
    for (const auto& record : records_) {
        entries.push_back(record->entry);
    }
    return entries;
}

Catalog::Record* Catalog::find(std::string_view name, std::string_view version) const noexcept {
    Record* newest = nullptr;  // records are sorted, newest first
    for (const auto& record : records_) {
        if (!record->package || record->entry.name != name) {
            continue;
        }
        if (!version.empty()) {
            if (record->entry.version == version) {
                return record.get();
            }
        } else if (record->entry.is_active) {
            return record.get();
        } else if (newest == nullptr || (newest->is_prerelease() && !record->is_prerelease())) {
            newest = record.get();
        }
    }
    return newest;
}

Catalog::Use Catalog::load(std::string_view name, std::string_view version, std::int64_t now_ns) {
    Record* const record = find(name, version);
    if (record == nullptr) {
        throw Error(ErrorCode::NotFound,
                    "no model " + std::string(name) + (version.empty() ? "" : " " + std::string(version)) +
                        "; the listing names those that there are, and what is wrong with broken ones");
    }
    if (!record->model) {
        try {
            record->model.emplace(LoadedModel::load(*record->package, "cpu", options_.backing));
        } catch (const std::exception& problem) {
            record->break_with(problem.what());
            throw;
        }
        record->entry.state = PackageState::Loaded;
    }
    record->last_used_at_ns = now_ns;
    return Use(*record);
}

void Catalog::activate(std::string_view name, std::string_view version) {
    Record* const chosen = find(name, version);
    if (chosen == nullptr) {
        throw Error(ErrorCode::NotFound,
                    "no model " + std::string(name) + " " + std::string(version) + " to make the active one");
    }
    for (const auto& record : records_) {
        if (record->entry.name == name) {
            record->entry.is_active = !version.empty() && record.get() == chosen;
        }
    }
}

void Catalog::pin(std::string_view name, std::string_view version, bool is_pinned) {
    Record* const record = find(name, version);
    if (record == nullptr) {
        throw Error(ErrorCode::NotFound, "no model " + std::string(name) + " to pin");
    }
    record->entry.is_pinned = is_pinned;
}

std::size_t Catalog::evict_idle(std::int64_t now_ns) noexcept {
    std::size_t count = std::erase_if(retired_, [](const auto& record) { return record->entry.user_count == 0; });
    for (const auto& record : records_) {
        const bool is_idle = record->model && record->entry.user_count == 0 && !record->entry.is_pinned;
        if (is_idle && options_.eviction.is_due(record->last_used_at_ns, now_ns)) {
            record->model.reset();
            record->entry.state = PackageState::Available;
            ++count;
        }
    }
    return count;
}

}  // namespace perceptd::model
