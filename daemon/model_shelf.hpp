// The models that answer clients, out of the configured folders: found by name, verified, loaded, kept while they are
// used, let go after. Owns the loaded models and a catalog of its own, since it lives on the answering thread. Never
// runs a file whose digest is not the manifest's.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "generate/served_model.hpp"
#include "model/catalog.hpp"

namespace perceptd {

struct ModelShelfOptions {
    model::CatalogOptions catalog;
    std::size_t context_tokens_max = 2048;  ///< at most the model's own
    std::size_t running_max = 4;            ///< answers at the same time, each with a whole context
};

/// Thread-bound to the answering thread, and so is `team`, which outlives it.
class ModelShelf final : public generate::ModelSource {
public:
    ModelShelf(engine::WorkerTeam& team, ModelShelfOptions options);

    [[nodiscard]] std::shared_ptr<generate::ServedModel> open(std::string_view name, std::string_view version) override;
    void evict_idle(std::int64_t now_ns) noexcept override;

private:
    struct Entry {
        std::shared_ptr<generate::ServedModel> model;
        std::int64_t last_used_at_ns = 0;
    };

    engine::WorkerTeam& team_;
    ModelShelfOptions options_;
    model::Catalog catalog_;
    std::map<std::string, Entry> entries_;  ///< by digest of the package
};

}  // namespace perceptd
