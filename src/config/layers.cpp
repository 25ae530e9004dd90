#include "config/layers.h"

#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace palimpsest {
namespace {

void check_mixer(const Source& where, const std::string& name, const Catalog& catalog, Diagnostics& errors,
                 const char* section = "") {
    if (catalog.mixer_schema(name)) return;
    const std::string hint = did_you_mean(name, catalog.mixers);
    errors.error(where, fmt::format("unknown mixer '{}'{}{}", name, section,
                                    hint.empty() ? fmt::format("; known: {}", join(catalog.mixers, ", ")) : hint));
}

void check_names(const Value& root, const Catalog& catalog, const ModelSpec& model, Diagnostics& errors) {
    const Value *mixer = find_path(root, "model.mixer"), *layers = find_path(root, "model.layers");
    if (mixer || model.layers.empty()) check_mixer(mixer ? mixer->source : root.source, model.mixer, catalog, errors);
    for (std::size_t i = 0; i < model.layers.size(); ++i) {
        const Value& item = layers->items[i];
        const Value* name = item.find("mixer");
        if (!model.layers[i].mixer.empty()) check_mixer((name ? *name : item).source, model.layers[i].mixer, catalog, errors);
    }
}

// `MixerLayers` holds the options of one mixer for each of its layers.
class MixerLayers {
public:
    MixerLayers(const AnySchema& schema, std::string name, std::shared_ptr<void> defaults, RunSpec& run)
        : schema_(schema), name_(std::move(name)), path_("mixers." + name_), defaults_(std::move(defaults)), run_(run) {}

    // Reads the options of every layer, and returns the resolved options that the layers have in common.
    Value read(Effects& effects, Diagnostics& errors) {
        std::vector<Layer>& layers = run_.model.layers;
        std::map<std::size_t, std::shared_ptr<void>> own;
        std::vector<Effects::User> users;
        for (std::size_t i = 0; i < layers.size(); ++i) {
            if (layers[i].mixer != name_) continue;
            const std::string path = fmt::format("model.layers.{}", i);
            if (layers[i].options.kind == Value::Kind::map) {
                own[i] = schema_.copy(defaults_.get());
                schema_.read(own[i].get(), layers[i].options, path, errors);
                schema_.settle(own[i].get());
                users.push_back({own[i].get(), &layers[i].options, path});
            } else {
                users.push_back({defaults_.get(), nullptr, path});
            }
        }
        effects.judge(schema_, path_, defaults_.get(), users, "layer of this mixer");
        schema_.settle(defaults_.get());
        if (users.size() != own.size() || users.empty()) effects.caution(schema_, path_, defaults_.get());
        for (const auto& [i, options] : own) effects.caution(schema_, fmt::format("model.layers.{}", i), options.get());
        return share(own);
    }

private:
    Value share(std::map<std::size_t, std::shared_ptr<void>>& own) {
        std::vector<Layer>& layers = run_.model.layers;
        if (own.empty()) {
            run_.mixers[name_] = defaults_;
            return schema_.write(defaults_.get());
        }
        std::map<std::size_t, Value> resolved;
        for (std::size_t i = 0; i < layers.size(); ++i)
            if (layers[i].mixer == name_) {
                own.try_emplace(i, defaults_);
                resolved[i] = schema_.write(own[i].get());
            }
        Value shared = take_shared(resolved, false);
        const bool alike =
            std::all_of(resolved.begin(), resolved.end(), [](const auto& layer) { return layer.second.entries.empty(); });
        if (alike) run_.mixers[name_] = own.begin()->second;
        for (const auto& [i, options] : own) {
            if (!alike) run_.layers[i] = options;
            layers[i].options = alike ? Value() : resolved[i];
        }
        return shared;
    }

    const AnySchema& schema_;
    const std::string name_, path_;
    std::shared_ptr<void> defaults_;
    RunSpec& run_;
};

}  // namespace

Value read_mixers(const Value& root, const Catalog& catalog, RunSpec& run, Effects& effects, Diagnostics& errors) {
    check_names(root, catalog, run.model, errors);
    std::map<std::string, std::shared_ptr<void>> given;
    const Value* section = root.find("mixers");
    if (section && section->kind != Value::Kind::map && section->kind != Value::Kind::null)
        errors.error(section->source, "'mixers' expects a map from mixers to their options, such as {delta: {heads: 2}}");
    static const Value none = Value::map();
    for (const Value::Entry& entry : (section ? *section : none).entries) {
        check_mixer(entry.source, entry.key, catalog, errors, " in 'mixers'");
        const AnySchema* schema = catalog.mixer_schema(entry.key);
        if (!schema) continue;
        given[entry.key] = schema->make_default();
        schema->read(given[entry.key].get(), entry.value, "mixers." + entry.key, errors);
    }
    std::set<std::string> used;
    for (const Layer& layer : run.model.layers) used.insert(layer.mixer);
    if (used.empty()) used.insert(run.model.mixer);
    Value resolved = Value::map();
    for (const std::string& name : used) {
        const AnySchema* schema = catalog.mixer_schema(name);
        if (!schema) continue;
        const auto own = given.find(name);
        resolved.set(
            name, MixerLayers(*schema, name, own == given.end() ? schema->make_default() : own->second, run).read(effects, errors));
    }
    for (const auto& [name, object] : given) {
        if (used.count(name)) continue;
        effects.judge(*catalog.mixer_schema(name), "mixers." + name, object.get());
        effects.not_used("mixers." + name);
    }
    return resolved;
}

Value take_shared(std::map<std::size_t, Value>& maps, bool everywhere) {
    Value shared = Value::map();
    std::set<std::string> seen;
    for (const auto& [first, map] : maps)
        for (const Value::Entry& entry : map.entries) {
            if (!seen.insert(entry.key).second) continue;
            const bool same = std::all_of(maps.begin(), maps.end(), [&](const auto& other) {
                const Value* value = other.second.find(entry.key);
                return value ? value->same_content(entry.value) : !everywhere;
            });
            if (same) shared.set(entry.key, entry.value);
        }
    for (auto& [index, map] : maps)
        std::erase_if(map.entries, [&](const Value::Entry& entry) { return shared.find(entry.key) != nullptr; });
    return shared;
}

}  // namespace palimpsest
