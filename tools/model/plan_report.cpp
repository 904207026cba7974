#include "plan_report.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "engine/kv_pages.hpp"
#include "engine/packed_decoder.hpp"
#include "graph/fuse.hpp"
#include "graph/memory_plan.hpp"
#include "graph/residency.hpp"
#include "graph/tile_plan.hpp"
#include "graph/traffic.hpp"
#include "model/model_file.hpp"

namespace perceptd::model_tool {
namespace {

using Json = nlohmann::ordered_json;

/// A decoder's shape and its graph; the file may be closed again.
struct Planned {
    model::DecoderConfig config;
    graph::Graph graph;
    std::uint64_t kv_position_bytes = 0;  // one layer
};

Planned planned(const std::string& path, bool fuse) {
    const model::ModelFile file = model::ModelFile::open(path, model::Backing::Mapped);
    const model::Gguf gguf = model::Gguf::parse(file.bytes(), file.label());
    const model::Decoder decoder = model::read_decoder(gguf);
    const engine::PackedDecoder layout = engine::PackedDecoder::lay_out(decoder);
    graph::Graph graph =
        graph::build_decoder(engine::decoder_shape_of(decoder.config),
                             [&](std::string_view name, std::uint32_t, std::uint32_t) { return layout.form_of(name); });
    const engine::KvShape kv{1, decoder.config.kv_head_count, decoder.config.head_dim, engine::KvFormat::F16};
    return {decoder.config, fuse ? graph::fuse(std::move(graph)) : std::move(graph), kv.position_bytes()};
}

Json passes_of(const Planned& plan, std::uint32_t positions) {
    Json passes = Json::array();
    for (const std::uint32_t tokens : {1U, 2U, 5U, 16U, 512U}) {
        const graph::Traffic traffic =
            graph::predict(plan.graph, {.tokens = tokens, .positions_before = positions}, plan.kv_position_bytes);
        const graph::MemoryPlan memory =
            graph::plan_memory(plan.graph, {.tokens_max = tokens, .positions_max = positions + tokens});
        passes.push_back({{"tokens", tokens},
                          {"weight_bytes", traffic.weight_bytes},
                          {"kv_read_bytes", traffic.kv_read_bytes},
                          {"kv_write_bytes", traffic.kv_write_bytes},
                          {"dram_bytes", traffic.dram_bytes()},
                          {"workspace_bytes", memory.workspace_bytes}});
    }
    return passes;
}

Json tiles_of(const Planned& plan, std::uint64_t tcm_bytes, std::uint32_t positions) {
    Json tiles = Json::array();
    for (const std::uint32_t tokens : {1U, 5U, 64U, 512U}) {
        const graph::TileMachine machine{.tcm_bytes = tcm_bytes};
        const auto block = graph::plan_feed_forward(
            {.tokens = tokens, .hidden_width = plan.config.width, .ffn_width = plan.config.feed_forward_width},
            machine);
        const graph::AttentionShape& heads = plan.graph.attention;
        const auto attention = graph::plan_attention({.query_rows = tokens * heads.query_heads / heads.kv_heads,
                                                      .positions = positions + tokens,
                                                      .head_dim = heads.head_dim,
                                                      .query_element_bytes = 4,
                                                      .kv_element_bytes = 2},
                                                     machine);
        Json entry{{"tokens", tokens}};
        if (block) {
            entry["feed_forward"] = {{"fused", block->fused},
                                     {"token_tile", block->fused ? block->token_tile : block->gate_up.token_tile},
                                     {"ffn_tile", block->fused ? block->ffn_tile : block->gate_up.row_tile / 2},
                                     {"dram_bytes", block->cost.dram_bytes},
                                     {"footprint_bytes", block->cost.footprint_bytes}};
        }
        if (attention) {
            entry["attention_per_kv_head"] = {{"fused", attention->fused},
                                              {"query_tile", attention->query_tile},
                                              {"position_tile", attention->position_tile},
                                              {"dram_bytes", attention->cost.dram_bytes},
                                              {"footprint_bytes", attention->cost.footprint_bytes}};
        }
        tiles.push_back(std::move(entry));
    }
    return tiles;
}

Json residency_of(const std::vector<graph::ResidencyCandidate>& candidates, std::uint64_t budget_bytes) {
    const graph::ResidencyPlan plan = graph::plan_residency(candidates, budget_bytes);
    Json models = Json::array();
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        Json names = Json::array();
        for (graph::WeightId id = 0; id < plan.pinned[i].size(); ++id) {
            if (plan.pinned[i][id]) {
                names.push_back(candidates[i].graph->weights[id].name);
            }
        }
        models.push_back({{"role", i == 0 ? "target" : "draft"},
                          {"pinned_bytes", plan.pinned_bytes[i]},
                          {"weight_bytes", plan.weight_bytes[i]},
                          {"fraction", plan.fraction(i)},
                          {"weights", std::move(names)}});
    }
    return {{"budget_bytes", budget_bytes},
            {"saved_bytes_per_cycle", plan.saved_bytes_per_cycle},
            {"models", std::move(models)}};
}

std::string mebibytes(const Json& bytes) {
    char text[32];
    std::snprintf(text, sizeof(text), "%10.3f", bytes.get<double>() / (1 << 20));
    return text;
}

std::string layer_text(const graph::Graph& graph) {
    std::istringstream lines(graph::to_text(graph));
    std::string text;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("- ") || line.starts_with("0 ")) {
            text += "  " + line + "\n";
        }
    }
    return text;
}

std::string text_of(const Json& report, const Planned& plan) {
    std::string text = "operations (first layer of " + std::to_string(plan.graph.layer_count) + ")\n" +
                       layer_text(plan.graph) + "\nMiB per pass\n  tokens    weights   KV read  KV write workspace\n";
    for (const Json& pass : report["passes"]) {
        char tokens[16];
        std::snprintf(tokens, sizeof(tokens), "%8u", pass["tokens"].get<unsigned>());
        text += tokens + mebibytes(pass["weight_bytes"]) + mebibytes(pass["kv_read_bytes"]) +
                mebibytes(pass["kv_write_bytes"]) + mebibytes(pass["workspace_bytes"]) + "\n";
    }
    if (report.contains("tiles")) {
        text += "\ntiles\n";
        for (const Json& entry : report["tiles"]) {
            text += "  " + entry["tokens"].dump() + " tokens: ";
            for (const char* const part : {"feed_forward", "attention_per_kv_head"}) {
                text += std::string(part) + " " + (entry.contains(part) ? entry[part].dump() : "does not fit") + "  ";
            }
            text += "\n";
        }
    }
    if (report.contains("residency")) {
        text += "\npinned\n";
        for (const Json& model : report["residency"]["models"]) {
            text += "  " + model["role"].get<std::string>() + ": " + mebibytes(model["pinned_bytes"]) + " of " +
                    mebibytes(model["weight_bytes"]) + " MiB (" + std::to_string(model["weights"].size()) +
                    " weights)\n";
        }
    }
    return text;
}

}  // namespace

std::string plan_report(const PlanOptions& options) {
    const Planned target = planned(options.model_path, options.fuse);
    std::vector<graph::ResidencyCandidate> candidates{{&target.graph, 1}};
    Planned draft;
    if (!options.draft_path.empty()) {
        draft = planned(options.draft_path, options.fuse);
        candidates.push_back({&draft.graph, options.draft_passes_per_cycle});
    }
    Json report{{"model", options.model_path},
                {"layers", target.graph.layer_count},
                {"operations", target.graph.nodes.size()},
                {"positions", options.positions},
                {"passes", passes_of(target, options.positions)}};
    if (options.tcm_bytes > 0) {
        report["tiles"] = tiles_of(target, options.tcm_bytes, options.positions);
    }
    if (options.pinned_bytes > 0) {
        report["residency"] = residency_of(candidates, options.pinned_bytes);
    }
    return options.as_json ? report.dump() + "\n" : text_of(report, target);
}

}  // namespace perceptd::model_tool
