// The command line of perceptd-model: options in, exit status out (0 done, 1 failed or unusable, 2 wrong usage).
#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <stdexcept>

#include "accuracy.hpp"
#include "calibration.hpp"
#include "inspection.hpp"
#include "packing.hpp"
#include "plan_report.hpp"
#include "quantization.hpp"
#include "random_decoder.hpp"
#include "whole_number.hpp"

namespace {

using namespace perceptd;

constexpr const char* kTypes = "f32, f16, bf16, q8_0, q4_0, q4_1, q6_k, int4-g32, int4-g128, fp8-e4m3 or fp8-e5m2";

model::Encoding encoding_of(const std::string& name) {
    const auto encoding = model::encoding_from(name);
    if (!encoding || *encoding == model::Encoding::Q4_K) {
        throw CLI::ValidationError("--type", name + " cannot be made; use " + kTypes);
    }
    return *encoding;
}

/// The file to write, named like everywhere: -o FILE, or as the last word.
void add_output(CLI::App& command, std::string& path) {
    command.add_option("-o,--output,output", path, "File to write")->required();
}

/// `action` is set to what the parsed subcommand does; its options live in the closure.
void add_inspect(CLI::App& app, std::function<int()>& action) {
    CLI::App* const command = app.add_subcommand("inspect", "Says what a GGUF file or package folder holds.");
    auto path = std::make_shared<std::string>();
    auto as_json = std::make_shared<bool>(false);
    command->add_option("path", *path, "GGUF file or package folder")->required();
    command->add_flag("--json", *as_json, "One JSON object");
    command->callback([=, &action] {
        action = [=] {
            const model_tool::Inspection inspection = model_tool::inspect(*path, *as_json);
            std::cout << inspection.text;
            return inspection.is_usable ? 0 : 1;
        };
    });
}

struct MakeOptions {
    std::string shape = "15m";
    std::string type = "q8_0";
    std::string output;
    std::uint64_t seed = 1;
    model::DecoderConfig custom;
};

void add_make(CLI::App& app, std::function<int()>& action) {
    CLI::App* const command = app.add_subcommand("make", "Makes a decoder with random weights.");
    auto options = std::make_shared<MakeOptions>();
    command->add_option("--shape", options->shape, "15m, 120m, 1.1b, or custom with the options below")
        ->capture_default_str();
    command->add_option("--type", options->type, kTypes)->capture_default_str();
    command->add_option("--seed", options->seed, "The same seed makes the same bytes")
        ->check(whole_number<std::uint64_t>())
        ->capture_default_str();
    add_output(*command, options->output);
    model::DecoderConfig& custom = options->custom;
    custom = *model_tool::named_shape("15m");
    const CLI::Range size(1U, 1U << 20);
    command->add_option("--width", custom.width, "Width of the residual stream")->check(size);
    command->add_option("--layers", custom.layer_count, "Layers")->check(CLI::Range(1U, 1024U));
    command->add_option("--heads", custom.head_count, "Attention heads")->check(CLI::Range(1U, 1024U));
    command->add_option("--kv-heads", custom.kv_head_count, "Key and value heads")->check(CLI::Range(1U, 1024U));
    command->add_option("--head-dim", custom.head_dim, "Elements of a head")->check(CLI::Range(2U, 1024U));
    command->add_option("--feed-forward", custom.feed_forward_width, "Inner width")->check(size);
    command->add_option("--vocabulary", custom.vocabulary_size, "Tokens")->check(size);
    command->add_option("--context", custom.context_tokens, "Tokens of context")->check(CLI::Range(1U, 1U << 24));
    command->add_flag("--tied,!--untied", custom.has_tied_embeddings, "The output matrix is the embedding table");
    command->callback([=, &action] {
        action = [=] {
            options->custom.rope.dimension_count = options->custom.head_dim;
            const auto config =
                options->shape == "custom" ? std::optional(options->custom) : model_tool::named_shape(options->shape);
            if (!config) {
                throw CLI::ValidationError("--shape", options->shape + " is unknown; use 15m, 120m, 1.1b or custom");
            }
            model_tool::make_random_decoder(*config, encoding_of(options->type), options->seed, options->output);
            return 0;
        };
    });
}

void add_quantize(CLI::App& app, std::function<int()>& action) {
    CLI::App* const command = app.add_subcommand("quantize", "Stores a model in another encoding.");
    struct Options {
        std::string input, output, type;
        model_tool::QuantizeOptions how;
    };
    auto options = std::make_shared<Options>();
    command->add_option("input", options->input, "GGUF file, best F16")->required();
    add_output(*command, options->output);
    command->add_option("--type", options->type, kTypes)->required();
    command->add_option("--calibration", options->how.calibration_path,
                        "What perceptd-model calibrate wrote: int4 then errs where it matters least");
    command
        ->add_option("--smooth", options->how.smoothing,
                     "Move this part of large activation channels into the weights, 0 to 1 (try 0.5)")
        ->check(CLI::Range(0.0, 1.0));
    command->callback([=, &action] {
        action = [=] {
            options->how.encoding = encoding_of(options->type);
            model_tool::quantize(options->input, options->output, options->how);
            return 0;
        };
    });
}

void add_sample(CLI::App& command, model_tool::SampleOptions& sample) {
    command.add_option("--text", sample.text_path, "Text file; without it random token ids");
    command.add_option("--tokens", sample.tokens, "Tokens in all")
        ->capture_default_str()
        ->check(CLI::Range(2U, 1U << 20));
    command.add_option("--sequence", sample.sequence, "Tokens that follow each other")
        ->check(CLI::Range(2U, 1U << 20))
        ->capture_default_str();
    command.add_option("--seed", sample.seed, "Of random ids")
        ->check(whole_number<std::uint64_t>())
        ->capture_default_str();
}

void add_calibrate(CLI::App& app, std::function<int()>& action) {
    CLI::App* const command = app.add_subcommand("calibrate", "Notes what a decoder's matrices are multiplied with.");
    struct Options {
        std::string input, output;
        model_tool::SampleOptions sample;
    };
    auto options = std::make_shared<Options>();
    command->add_option("input", options->input, "GGUF file, best F16")->required();
    add_output(*command, options->output);
    add_sample(*command, options->sample);
    command->callback([=, &action] {
        action = [=] {
            model_tool::calibrate(options->input, options->sample, options->output);
            return 0;
        };
    });
}

void add_accuracy(CLI::App& app, std::function<int()>& action) {
    CLI::App* const command =
        app.add_subcommand("accuracy", "Says how far the engine's logits are from exact arithmetic.");
    auto options = std::make_shared<model_tool::AccuracyOptions>();
    auto as_json = std::make_shared<bool>(false);
    command->add_option("model", options->model_path, "GGUF file")->required();
    command->add_option("--against", options->reference_path,
                        "GGUF file with the reference's weights, e.g. the F16 original; without it the model itself");
    add_sample(*command, options->sample);
    command->add_option("--kv", options->kv_format, "Format of the cache: f32, f16, q8 or fp8")
        ->transform(
            CLI::CheckedTransformer(std::map<std::string, engine::KvFormat>{{"f32", engine::KvFormat::F32},
                                                                            {"f16", engine::KvFormat::F16},
                                                                            {"q8", engine::KvFormat::Q8},
                                                                            {"fp8", engine::KvFormat::Fp8E4m3}}));
    command->add_flag("--json", *as_json, "One JSON object");
    command->callback([=, &action] {
        action = [=] {
            std::cout << model_tool::accuracy_report(*options, *as_json);
            return 0;
        };
    });
}

void add_plan(CLI::App& app, std::function<int()>& action) {
    CLI::App* const command = app.add_subcommand("plan", "Says what a decoder moves and needs, before it runs.");
    auto options = std::make_shared<model_tool::PlanOptions>();
    const auto as_size = CLI::AsSizeValue(false);
    command->add_option("model", options->model_path, "GGUF file")->required();
    command->add_option("--draft", options->draft_path, "Draft model, for --pinned");
    command->add_option("--positions", options->positions, "Tokens already in the cache")
        ->capture_default_str()
        ->check(CLI::Range(0U, 1U << 24));
    command->add_option("--tcm", options->tcm_bytes, "Size of a TCM to cut tiles for, e.g. 4MiB")->transform(as_size);
    command->add_option("--pinned", options->pinned_bytes, "Memory for pinned weights, e.g. 2MiB")->transform(as_size);
    command->add_flag("!--no-fuse", options->fuse, "Plan the graph as built, without fusion");
    command->add_flag("--json", options->as_json, "One JSON object");
    command->callback([=, &action] {
        action = [=] {
            std::cout << model_tool::plan_report(*options);
            return 0;
        };
    });
}

void add_pack(CLI::App& app, std::function<int()>& action) {
    CLI::App* const command = app.add_subcommand("pack", "Checks the files of a folder and writes its manifest.json.");
    auto options = std::make_shared<model_tool::PackOptions>();
    command->add_option("folder", options->folder, "Package folder")->required();
    command->add_option("--name", options->name, "a-z 0-9 . _ -");
    command->add_option("--version", options->version, "Semantic version, e.g. 1.0.0");
    command->add_option("--licence", options->licence, "Licence of the model");
    command->add_option("--description", options->description, "One line for people");
    command->add_option("--model", options->model_file, "The decoder's file, if there is more than one .gguf");
    command->add_option("--draft", options->draft_file, "The draft model's file");
    command->add_option("--prompt-template", options->prompt_template, "Text around {prompt}");
    command->callback([=, &action] {
        action = [=] {
            const model::Manifest manifest = model_tool::pack(*options);
            std::cout << manifest.name << " " << manifest.version.text << ": " << manifest.files.size() << " files\n";
            return 0;
        };
    });
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Makes, converts, judges, looks at and packs models for perceptd.", "perceptd-model");
    app.set_version_flag("--version", std::string("perceptd-model ") + PERCEPTD_VERSION);
    app.require_subcommand(1);
    std::function<int()> action;
    add_inspect(app, action);
    add_make(app, action);
    add_quantize(app, action);
    add_calibrate(app, action);
    add_accuracy(app, action);
    add_pack(app, action);
    add_plan(app, action);
    try {
        app.parse(argc, argv);
        const int status = action();
        if (!std::cout.flush()) {
            throw std::runtime_error("the output could not be written; is the disk full?");
        }
        return status;
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    } catch (const std::exception& error) {
        std::cerr << "perceptd-model: " << error.what() << "\n";
        return 1;
    }
}
