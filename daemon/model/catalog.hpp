// The models that this device has: packages in the configured folders, those that are loaded, and when they go again.
// Owns the loaded models. Never fails over a broken package: it is listed with the reason.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/loaded_model.hpp"

namespace perceptd::model {

enum class PackageState : std::uint8_t {
    Available,  ///< the manifest is good; files are hashed when it is loaded
    Loaded,
    Broken,  ///< `reason` says why
};

/// When a loaded model that nobody uses may go.
struct IdleEviction {
    std::int64_t idle_ns = 600'000'000'000;

    [[nodiscard]] bool is_due(std::int64_t last_used_at_ns, std::int64_t now_ns) const noexcept {
        return now_ns - last_used_at_ns >= idle_ns;
    }
};

struct CatalogOptions {
    std::vector<std::string> folders;  ///< each holds package folders; earlier ones win
    Backing backing = Backing::Mapped;
    IdleEviction eviction;
};

/// One line of the listing.
struct CatalogEntry {
    std::string folder;
    std::string name;     ///< empty when the manifest could not be read
    std::string version;  ///< likewise
    std::string licence;
    PackageState state = PackageState::Available;
    std::string reason;
    std::uint64_t size_bytes = 0;
    std::uint32_t user_count = 0;
    bool is_pinned = false;
    bool is_active = false;  ///< the version that is meant where none is named
};

/// Thread-bound (main thread). load() blocks on file I/O.
class Catalog {
public:
    class Record;

    /// The right to use a loaded model; while it lives the model stays. Move-only, not to outlive the catalog.
    class Use {
    public:
        Use() noexcept = default;
        Use(Use&& other) noexcept : record_(std::exchange(other.record_, nullptr)) {}
        Use& operator=(Use&& other) noexcept;
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;
        ~Use();
        [[nodiscard]] const LoadedModel& operator*() const noexcept;
        [[nodiscard]] const LoadedModel* operator->() const noexcept { return &**this; }
        [[nodiscard]] explicit operator bool() const noexcept { return record_ != nullptr; }

    private:
        friend class Catalog;
        Use(Record& record) noexcept;
        Record* record_ = nullptr;
    };

    explicit Catalog(CatalogOptions options);
    ~Catalog();

    /// Looks at the folders again and replaces the listing as a whole. Loaded models in use stay usable, also when
    /// their package has changed or gone. Never throws for what it finds. Returns how many packages are broken.
    std::size_t scan();
    /// Sorted by name, then newest version first; broken ones last.
    [[nodiscard]] std::vector<CatalogEntry> list() const;

    /// The model `name`, loaded if it is not; `version` empty takes the active one, else the newest that is no
    /// prerelease, else the newest.
    /// Throws Error(NotFound), or what loading throws (the package is then listed as broken).
    [[nodiscard]] Use load(std::string_view name, std::string_view version, std::int64_t now_ns);
    /// Makes `version` the one that is meant where none is named, until another is; empty: the newest again. Held
    /// across scans while that version is there. Throws Error(NotFound).
    void activate(std::string_view name, std::string_view version);
    /// A pinned model is never evicted. Throws Error(NotFound).
    void pin(std::string_view name, std::string_view version, bool is_pinned);
    /// Unloads what nobody has used for the policy's time. Returns how many went.
    std::size_t evict_idle(std::int64_t now_ns) noexcept;

private:
    Record* find(std::string_view name, std::string_view version) const noexcept;
    void scan_folder(const std::string& folder, std::vector<std::unique_ptr<Record>>& found) const;

    CatalogOptions options_;
    std::vector<std::unique_ptr<Record>> records_;
    std::vector<std::unique_ptr<Record>> retired_;  // gone from the folders, still in use
};

}  // namespace perceptd::model
