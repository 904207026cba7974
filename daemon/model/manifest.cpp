// One strict pass over the JSON; each object lists its keys once, where it is read.
#include "model/manifest.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "model/utf8.hpp"

namespace perceptd::model {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxManifestBytes = 1U << 20;
constexpr std::size_t kMaxItems = 1024;

bool is_letter_or_digit(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// a-z 0-9 . _ -, starting with a letter or digit.
bool is_name(std::string_view text) noexcept {
    constexpr std::size_t kMaxNameBytes = 64;
    return !text.empty() && text.size() <= kMaxNameBytes && is_letter_or_digit(text[0]) &&
           std::all_of(text.begin(), text.end(), [](char c) {
               return (is_letter_or_digit(c) && !(c >= 'A' && c <= 'Z')) || c == '.' || c == '_' || c == '-';
           });
}

class ManifestReader {
public:
    explicit ManifestReader(const std::string& label) : label_(label) {}

    Manifest read(const json& root) {
        const std::string top;
        Manifest made;
        require_keys(root, top,
                     {"manifest", "name", "version", "licence", "files", "inputs", "outputs", "variants", "description",
                      "prompt_template", "draft", "tokenizer_sha256"},
                     8);
        if (unsigned_at(root, top, "manifest") != 1) {
            refuse("/manifest", "this perceptd reads version 1");
        }
        made.name = name_at(root, top, "name");
        read_version(root, made);
        made.licence = text_at(root, top, "licence", 1, 256);
        made.description = root.contains("description") ? text_at(root, top, "description", 0, 4096) : "";
        made.files = list_at<ManifestFile>(root, "files",
                                           [this](const json& item, const std::string& at) { return file(item, at); });
        made.inputs = list_at<ManifestPort>(root, "inputs",
                                            [this](const json& item, const std::string& at) { return port(item, at); });
        made.outputs = list_at<ManifestPort>(
            root, "outputs", [this](const json& item, const std::string& at) { return port(item, at); });
        made.variants = list_at<ManifestVariant>(
            root, "variants", [this](const json& item, const std::string& at) { return variant(item, at); });
        read_optional(root, made);
        check_references(made);
        return made;
    }

    [[noreturn]] void refuse(const std::string& pointer, const std::string& reason) const {
        throw Error(ErrorCode::InvalidArgument, label_ + ": " + (pointer.empty() ? "/" : pointer) + ": " + reason);
    }

private:
    /// The first `required_count` of `keys` must be there, the others may.
    void require_keys(const json& object, const std::string& at, const std::vector<std::string_view>& keys,
                      std::size_t required_count) const {
        if (!object.is_object()) {
            refuse(at, "must be an object");
        }
        for (const auto& [key, unused] : object.items()) {
            if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
                refuse(at + "/" + printable(key), "unknown key");
            }
        }
        for (std::size_t i = 0; i < required_count; ++i) {
            if (!object.contains(std::string(keys[i]))) {
                refuse(at + "/" + std::string(keys[i]), "missing");
            }
        }
    }

    std::string text_at(const json& object, const std::string& at, const char* key, std::size_t min_bytes,
                        std::size_t max_bytes) const {
        const json& value = object.at(key);
        if (!value.is_string() || value.get_ref<const std::string&>().size() < min_bytes ||
            value.get_ref<const std::string&>().size() > max_bytes) {
            refuse(at + "/" + key,
                   "must be a string of " + std::to_string(min_bytes) + " .. " + std::to_string(max_bytes) + " bytes");
        }
        return value.get<std::string>();
    }

    std::string name_at(const json& object, const std::string& at, const char* key) const {
        const std::string name = text_at(object, at, key, 1, 64);
        if (!is_name(name)) {
            refuse(at + "/" + key, "must be of a-z 0-9 . _ - and start with a letter or digit");
        }
        return name;
    }

    std::uint64_t unsigned_at(const json& object, const std::string& at, const char* key) const {
        const json& value = object.at(key);
        if (!value.is_number_unsigned()) {
            refuse(at + "/" + key, "must be a whole number, 0 or more");
        }
        return value.get<std::uint64_t>();
    }

    Digest digest_at(const json& object, const std::string& at, const char* key) const {
        const auto digest =
            object.at(key).is_string() ? digest_from_hex(object.at(key).get_ref<const std::string&>()) : std::nullopt;
        if (!digest) {
            refuse(at + "/" + key, "must be a SHA-256 as 64 lower-case hexadecimal digits");
        }
        return *digest;
    }

    template <typename Item, typename Read>
    std::vector<Item> list_at(const json& root, const char* key, Read read) const {
        const json& value = root.at(key);
        const std::string at = std::string("/") + key;
        if (!value.is_array() || value.empty() || value.size() > kMaxItems) {
            refuse(at, "must be a list of 1 .. " + std::to_string(kMaxItems));
        }
        std::vector<Item> items;
        for (std::size_t i = 0; i < value.size(); ++i) {
            items.push_back(read(value[i], at + "/" + std::to_string(i)));
        }
        return items;
    }

    std::string path_at(const json& object, const std::string& at, const char* key) const {
        const std::string path = text_at(object, at, key, 1, 255);
        if (!is_package_path(path)) {
            refuse(at + "/" + key,
                   "must be a path inside the package, of letters, digits, . _ - and /, without . and ..");
        }
        return path;
    }

    ManifestFile file(const json& item, const std::string& at) const {
        require_keys(item, at, {"path", "sha256", "size_bytes"}, 3);
        return {path_at(item, at, "path"), digest_at(item, at, "sha256"), unsigned_at(item, at, "size_bytes")};
    }

    ManifestPort port(const json& item, const std::string& at) const {
        constexpr std::size_t kMaxRank = 8;
        require_keys(item, at, {"name", "kind", "shape"}, 2);
        ManifestPort port{name_at(item, at, "name"), text_at(item, at, "kind", 1, 16), {}};
        constexpr std::array<std::string_view, 5> kKinds{"tokens", "patches", "mel", "motion", "tensor"};
        if (std::find(kKinds.begin(), kKinds.end(), port.kind) == kKinds.end()) {
            refuse(at + "/kind", "must be tokens, patches, mel, motion or tensor");
        }
        if (item.contains("shape")) {
            const json& shape = item.at("shape");
            const auto is_dim = [](const json& dim) {
                return dim.is_number_unsigned() && dim.get<std::uint64_t>() <= UINT32_MAX;
            };
            if (!shape.is_array() || shape.empty() || shape.size() > kMaxRank ||
                !std::all_of(shape.begin(), shape.end(), is_dim)) {
                refuse(at + "/shape", "must be a list of 1 .. 8 whole numbers; 0 is a free dimension");
            }
            port.shape = shape.get<std::vector<std::uint64_t>>();
        }
        return port;
    }

    ManifestVariant variant(const json& item, const std::string& at) const {
        require_keys(item, at, {"device", "file"}, 2);
        return {name_at(item, at, "device"), path_at(item, at, "file")};
    }

    void read_version(const json& root, Manifest& made) const {
        const auto version = Version::from(text_at(root, "", "version", 1, 128));
        if (!version) {
            refuse("/version", "must be a semantic version such as 1.2.3 or 1.2.3-beta.1");
        }
        made.version = *version;
    }

    void read_optional(const json& root, Manifest& made) const {
        if (root.contains("prompt_template")) {
            made.prompt_template = text_at(root, "", "prompt_template", 1, 65536);
            if (made.prompt_template.find("{prompt}") == std::string::npos) {
                refuse("/prompt_template", "must contain {prompt}");
            }
        }
        if (root.contains("tokenizer_sha256")) {
            made.tokenizer_sha256 = digest_at(root, "", "tokenizer_sha256");
        }
        if (root.contains("draft")) {
            const json& draft = root.at("draft");
            require_keys(draft, "/draft", {"file", "package"}, 0);
            if (draft.size() != 1) {
                refuse("/draft", "must have either file or package");
            }
            (draft.contains("file") ? made.draft_file : made.draft_package) =
                draft.contains("file") ? path_at(draft, "/draft", "file") : name_at(draft, "/draft", "package");
        }
    }

    void check_references(const Manifest& made) const {
        std::set<std::string_view> seen;
        for (const ManifestFile& file : made.files) {
            if (file.path == "manifest.json" || !seen.insert(file.path).second) {
                refuse("/files", file.path + " is listed twice, or is the manifest itself");
            }
        }
        std::set<std::string_view> devices;
        for (const ManifestVariant& variant : made.variants) {
            if (!devices.insert(variant.device).second) {
                refuse("/variants", "two variants for device " + variant.device);
            }
            if (!seen.contains(variant.file)) {
                refuse("/variants", variant.file + " is not in files");
            }
        }
        if (!made.draft_file.empty() && !seen.contains(made.draft_file)) {
            refuse("/draft/file", made.draft_file + " is not in files");
        }
        for (const auto* const ports : {&made.inputs, &made.outputs}) {
            std::set<std::string_view> names;
            for (const ManifestPort& port : *ports) {
                if (!names.insert(port.name).second) {
                    refuse(ports == &made.inputs ? "/inputs" : "/outputs", "the name " + port.name + " occurs twice");
                }
            }
        }
    }

    const std::string& label_;
};

/// Parses and refuses an object that has a key twice, which the JSON library would let pass.
json parse_strictly(std::string_view text, const ManifestReader& reader) {
    std::vector<std::set<std::string>> keys;
    const auto watch = [&](int, json::parse_event_t event, json& value) {
        if (event == json::parse_event_t::object_start) {
            keys.emplace_back();
        } else if (event == json::parse_event_t::object_end) {
            keys.pop_back();
        } else if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
            reader.refuse("",
                          "the key " + printable(value.get_ref<const std::string&>()) + " occurs twice in one object");
        }
        return true;
    };
    try {
        return json::parse(text, watch);
    } catch (const json::exception& error) {
        reader.refuse("", error.what());
    }
}

json ports_json(const std::vector<ManifestPort>& ports) {
    json list = json::array();
    for (const ManifestPort& port : ports) {
        list.push_back({{"name", port.name}, {"kind", port.kind}});
        if (!port.shape.empty()) {
            list.back()["shape"] = port.shape;
        }
    }
    return list;
}

}  // namespace

const ManifestFile* Manifest::find_file(std::string_view path) const noexcept {
    const auto found =
        std::find_if(files.begin(), files.end(), [&](const ManifestFile& file) { return file.path == path; });
    return found == files.end() ? nullptr : &*found;
}

const ManifestVariant* Manifest::find_variant(std::string_view device) const noexcept {
    const auto found = std::find_if(variants.begin(), variants.end(),
                                    [&](const ManifestVariant& one) { return one.device == device; });
    return found == variants.end() ? nullptr : &*found;
}

bool is_package_path(std::string_view path) noexcept {
    while (!path.empty()) {
        const std::size_t slash = path.find('/');
        const std::string_view part = path.substr(0, slash);
        const bool has_good_letters = std::all_of(
            part.begin(), part.end(), [](char c) { return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-'; });
        if (part.empty() || part[0] == '.' || !has_good_letters) {
            return false;
        }
        if (slash == std::string_view::npos) {
            return true;
        }
        path.remove_prefix(slash + 1);
    }
    return false;
}

Manifest parse_manifest(std::string_view text, const std::string& label) {
    ManifestReader reader(label);
    if (text.size() > kMaxManifestBytes) {
        reader.refuse("", "larger than 1 MiB");
    }
    return reader.read(parse_strictly(text, reader));
}

std::string manifest_text(const Manifest& manifest) {
    nlohmann::ordered_json root;
    root["manifest"] = 1;
    root["name"] = manifest.name;
    root["version"] = manifest.version.text;
    root["licence"] = manifest.licence;
    if (!manifest.description.empty()) {
        root["description"] = manifest.description;
    }
    for (const ManifestFile& file : manifest.files) {
        root["files"].push_back(
            {{"path", file.path}, {"sha256", to_hex(file.sha256)}, {"size_bytes", file.size_bytes}});
    }
    root["inputs"] = ports_json(manifest.inputs);
    root["outputs"] = ports_json(manifest.outputs);
    for (const ManifestVariant& variant : manifest.variants) {
        root["variants"].push_back({{"device", variant.device}, {"file", variant.file}});
    }
    if (!manifest.prompt_template.empty()) {
        root["prompt_template"] = manifest.prompt_template;
    }
    if (!manifest.draft_file.empty()) {
        root["draft"] = {{"file", manifest.draft_file}};
    } else if (!manifest.draft_package.empty()) {
        root["draft"] = {{"package", manifest.draft_package}};
    }
    if (manifest.tokenizer_sha256) {
        root["tokenizer_sha256"] = to_hex(*manifest.tokenizer_sha256);
    }
    return root.dump(2) + "\n";
}

}  // namespace perceptd::model
