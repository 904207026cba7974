#include "model_shelf.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "generate/prompt.hpp"
#include "model/package.hpp"

namespace perceptd {
namespace {

constexpr const char* kDevice = "cpu";

/// The folder of a loaded package.
std::string folder_of(const model::Catalog& catalog, const model::Manifest& manifest) {
    for (const model::CatalogEntry& entry : catalog.list()) {
        if (entry.name == manifest.name && entry.version == manifest.version.text &&
            entry.state == model::PackageState::Loaded) {
            return entry.folder;
        }
    }
    throw Error(ErrorCode::NotFound, "the model " + manifest.name + " went while it was loaded; try again");
}

}  // namespace

ModelShelf::ModelShelf(engine::WorkerTeam& team, ModelShelfOptions options)
    : team_(team), options_(std::move(options)), catalog_(options_.catalog) {}

std::shared_ptr<generate::ServedModel> ModelShelf::open(std::string_view name, std::string_view version) {
    catalog_.scan();  // a few manifests; a model that came since is found
    if (name.empty()) {
        throw Error(ErrorCode::InvalidArgument, "the question names no model; 'perceptctl ask MODEL ...' does");
    }
    const std::int64_t now_ns = monotonic_ns();
    const model::Catalog::Use use = catalog_.load(name, version, now_ns);
    const model::Manifest& manifest = use->manifest;
    const model::ManifestVariant* const variant = manifest.find_variant(kDevice);
    if (variant == nullptr) {
        throw Error(ErrorCode::Unsupported, "the model " + manifest.name + " has no variant for the CPU");
    }
    const std::string digest = model::to_hex(manifest.find_file(variant->file)->sha256);
    const std::string key = manifest.name + " " + manifest.version.text + " " + digest;
    Entry& entry = entries_[key];
    entry.last_used_at_ns = now_ns;
    if (entry.model) {
        return entry.model;
    }
    try {
        const std::string folder = folder_of(catalog_, manifest);
        generate::TextModelOptions text{.context_tokens_max = options_.context_tokens_max};
        auto model = std::make_shared<generate::ServedModel>();
        model->name = manifest.name;
        model->version = manifest.version.text;
        model->digest = digest;
        model->prompt_form =
            manifest.prompt_template.empty() ? std::string(generate::kPromptMark) : manifest.prompt_template;
        text.cache_tokens = options_.running_max *
                            std::min<std::size_t>(options_.context_tokens_max, use->main.decoder.config.context_tokens);
        model->target = std::make_unique<generate::TextModel>(folder + "/" + variant->file, team_, text);
        if (!manifest.draft_file.empty()) {
            model->draft = std::make_unique<generate::TextModel>(folder + "/" + manifest.draft_file, team_, text);
            generate::require_same_vocabulary(*model->target, *model->draft);
        }
        log::info("generate", "loaded " + key);
        entry.model = std::move(model);
        return entry.model;
    } catch (...) {
        entries_.erase(key);
        throw;
    }
}

void ModelShelf::evict_idle(std::int64_t now_ns) noexcept {
    std::erase_if(entries_, [&](const auto& item) {
        const Entry& entry = item.second;
        return entry.model.use_count() == 1 && options_.catalog.eviction.is_due(entry.last_used_at_ns, now_ns);
    });
    catalog_.evict_idle(now_ns);
}

}  // namespace perceptd
