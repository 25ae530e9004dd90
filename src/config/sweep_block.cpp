// The sweep block as it is written. Every key is read, or is an error with its place.
#include "config/schema_fields.h"
#include "config/sweep.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace palimpsest {
namespace {

const std::vector<std::string> known_keys = {"grid", "zip", "random", "exclude", "seeds", "cap", "lanes"};

void unknown_key(const Value::Entry& entry, const char* section, const std::vector<std::string>& known, Diagnostics& errors) {
    const std::string hint = did_you_mean(entry.key, known);
    errors.error(entry.source, fmt::format("unknown key '{}' in '{}'{}", entry.key, section,
                                           hint.empty() ? "; known keys: " + join(known, ", ") : hint));
}

std::vector<std::string> names_of(const std::vector<Value>& values) {
    std::vector<std::string> names;
    for (const Value& value : values) {
        const Value* name = value.find("name");
        if (!name || name->kind != Value::Kind::scalar || std::find(names.begin(), names.end(), name->text) != names.end())
            return {};
        names.push_back(name->text);
    }
    return names;
}

class Reader {
public:
    explicit Reader(Diagnostics& errors) : errors_(errors) {}

    Sweep read(const Value& block, const std::vector<Setting>& settings) {
        sweep_.source = block.source;
        if (block.kind != Value::Kind::map) {
            errors_.error(block.source, "'sweep' expects a map; known keys: " + join(known_keys, ", "));
            return std::move(sweep_);
        }
        for (const Value::Entry& entry : block.entries) {
            const Value& value = entry.value;
            if (entry.key == "grid") read_grid(value);
            else if (entry.key == "zip") read_zip(value);
            else if (entry.key == "random") read_random(value);
            else if (entry.key == "exclude") read_exclude(value);
            else if (entry.key == "seeds")
                fields::read(sweep_.seeds, value, "sweep.seeds", at_least(1), errors_), sweep_.seeds_source = value.source;
            else if (entry.key == "cap") fields::read(sweep_.cap, value, "sweep.cap", at_least(1), errors_);
            else if (entry.key == "lanes") read_lanes(value);
            else unknown_key(entry, "sweep", known_keys, errors_);
        }
        check_together(block, settings);
        return std::move(sweep_);
    }

private:
    bool is_map(const Value& value, const char* place, const char* example) {
        if (value.kind == Value::Kind::map) return true;
        errors_.error(value.source, fmt::format("'sweep.{}' expects a map from keys to {}", place, example));
        return false;
    }

    // Returns whether the key may be swept here. Of two keys the one above the other must come first, or it would undo the other.
    bool may_sweep(const Value::Entry& entry, const char* block) {
        const std::string first = entry.key.substr(0, entry.key.find('.'));
        if (first == "sweep" || first == "base" || first == "name") {
            errors_.error(entry.source, fmt::format("'{}' cannot be swept", first));
            return false;
        }
        for (const Axis& axis : sweep_.axes)
            for (const SweptKey& key : axis.keys) clash(key, entry, block);
        for (const SweptKey& key : together_) clash(key, entry, block);
        return true;
    }

    void clash(const SweptKey& earlier, const Value::Entry& entry, const char* block) {
        if (earlier.path == entry.key)
            errors_.error(entry.source, fmt::format("'{}' is in 'sweep.{}' and in 'sweep.{}' ({})", entry.key, block, earlier.block,
                                                    earlier.source.where()));
        else if (is_below(earlier.path, entry.key))
            errors_.error(entry.source,
                          fmt::format("'{}' would overwrite '{}', which is swept too; write it first", entry.key, earlier.path));
    }

    bool has_values(const Value::Entry& entry, const char* block) {
        const char* problem = entry.value.kind != Value::Kind::list ? "expects a list of values"
                              : entry.value.items.empty()           ? "has no values"
                                                                    : nullptr;
        if (problem) errors_.error(entry.value.source, fmt::format("'sweep.{}.{}' {}", block, entry.key, problem));
        return !problem;
    }

    void read_grid(const Value& grid) {
        if (!is_map(grid, "grid", "lists of values, such as {train.lr: [1e-3, 3e-3]}")) return;
        for (const Value::Entry& entry : grid.entries) {
            if (!may_sweep(entry, "grid") || !has_values(entry, "grid")) continue;
            const std::vector<Value>& values = entry.value.items;
            sweep_.axes.push_back({{{entry.key, "grid", "", entry.source, values, names_of(values)}}, values.size()});
        }
    }

    void read_zip(const Value& zip) {
        if (!is_map(zip, "zip", "lists of one length, such as {train.lr: [1e-3, 3e-3], train.batch: [32, 64]}")) return;
        const Value::Entry* first = nullptr;
        for (const Value::Entry& entry : zip.entries) {
            if (!may_sweep(entry, "zip") || !has_values(entry, "zip")) continue;
            const std::vector<Value>& values = entry.value.items;
            if (!first) first = &entry;
            else if (first->value.items.size() != values.size())
                errors_.error(
                    entry.value.source,
                    fmt::format("'sweep.zip.{}' has {}, but 'sweep.zip.{}' has {} ({}); the keys of a zip advance together",
                                entry.key, plural(static_cast<std::int64_t>(values.size()), "value"), first->key,
                                first->value.items.size(), first->value.source.where()));
            together_.push_back({entry.key, "zip", "", entry.source, values, names_of(values)});
        }
        advance_together();
    }

    void read_random(const Value& random) {
        if (random.kind != Value::Kind::map) {
            errors_.error(random.source,
                          "'sweep.random' expects a map, such as {samples: 20, draw: {train.lr: {log_uniform: [1e-4, 1e-2]}}}");
            return;
        }
        std::int64_t samples = 0, seed = 0;
        const Value* draw = nullptr;
        for (const Value::Entry& entry : random.entries) {
            if (entry.key == "samples") fields::read(samples, entry.value, "sweep.random.samples", between(1, most_runs), errors_);
            else if (entry.key == "seed") fields::read(seed, entry.value, "sweep.random.seed", at_least(0), errors_);
            else if (entry.key == "draw") draw = &entry.value;
            else unknown_key(entry, "sweep.random", {"samples", "seed", "draw"}, errors_);
        }
        if (!random.find("samples"))
            errors_.error(random.source, "'sweep.random' has no 'samples'; write how many are drawn, such as samples: 20");
        if (!draw)
            errors_.error(random.source, "'sweep.random' has no 'draw'; write draw: {train.lr: {log_uniform: [1e-4, 1e-2]}}");
        else if (is_map(*draw, "random.draw", "distributions, such as {train.lr: {log_uniform: [1e-4, 1e-2]}}"))
            read_draw(*draw, samples, seed);
    }

    void read_draw(const Value& draw, std::int64_t samples, std::int64_t seed) {
        if (draw.entries.empty()) errors_.error(draw.source, "'sweep.random.draw' has no keys");
        for (const Value::Entry& entry : draw.entries) {
            if (!may_sweep(entry, "random.draw")) continue;
            // Where the number of samples is missing one is drawn, so that other errors are told at once.
            std::vector<Value> values = draw_values(entry.value, entry.key, std::max<std::int64_t>(samples, 1), seed, errors_);
            if (values.empty()) continue;
            std::vector<std::string> names;
            if (const Value* choice = entry.value.find("choice"); choice && !names_of(choice->items).empty())
                for (const Value& value : values) names.push_back(value.find("name")->text);
            together_.push_back(
                {entry.key, "random.draw", entry.value.entries.front().key, entry.source, std::move(values), std::move(names)});
        }
        advance_together();
    }

    void advance_together() {
        if (together_.empty()) return;
        Axis axis{std::move(together_), most_runs + 1};
        for (const SweptKey& key : axis.keys) axis.size = std::min(axis.size, key.values.size());
        sweep_.axes.push_back(std::move(axis));
        together_.clear();
    }

    void read_exclude(const Value& list) {
        const char* example = "'sweep.exclude' expects a list of maps, such as [{model.mixer: softmax, train.lr: 1e-2}]";
        if (list.kind != Value::Kind::list) return errors_.error(list.source, example);
        for (const Value& item : list.items) {
            if (item.kind != Value::Kind::map || item.entries.empty()) {
                errors_.error(item.source, example);
                continue;
            }
            Exclusion exclusion{item.source, {}};
            for (const Value::Entry& entry : item.entries) exclusion.entries.push_back({entry.key, entry.source, entry.value});
            sweep_.exclude.push_back(std::move(exclusion));
        }
    }

    void read_lanes(const Value& value) {
        if (value.kind == Value::Kind::scalar && value.text == "auto") return;
        Diagnostics own;
        fields::read(sweep_.lanes, value, "sweep.lanes", at_least(1), own);
        const std::string got = value.kind == Value::Kind::scalar ? fmt::format(", got '{}'", value.text) : "";
        if (!own.empty()) errors_.error(value.source, "'sweep.lanes' expects auto or an integer of at least 1" + got);
    }

    void check_together(const Value& block, const std::vector<Setting>& settings) {
        for (const Axis& axis : sweep_.axes)
            for (const SweptKey& key : axis.keys) {
                if (key.path == "seed" && block.find("seeds"))
                    errors_.error(block.find("seeds")->source,
                                  fmt::format("give either 'sweep.seeds' or 'seed' in 'sweep.{}'", key.block));
                for (const Setting& setting : settings)
                    if (is_below(setting.path, key.path))
                        errors_.error(setting.source,
                                      fmt::format("'{}' has no effect: the sweep sets '{}'; set sweep.{}.{}={}", setting.path,
                                                  key.path, key.block, key.path, key.block == "random.draw" ? "{…}" : "[…]"));
            }
        const std::size_t points = points_of(sweep_);
        if (points > most_runs || static_cast<std::size_t>(sweep_.seeds) > most_runs / points)
            errors_.error(block.source, fmt::format("more than {} runs", most_runs));
    }

    Diagnostics& errors_;
    Sweep sweep_;
    std::vector<SweptKey> together_;  // the axes' keys of the block that is being read
};

}  // namespace

Sweep read_sweep(const Value& block, const std::vector<Setting>& settings, Diagnostics& errors) {
    return Reader(errors).read(block, settings);
}

}  // namespace palimpsest
