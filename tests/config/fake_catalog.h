// Two tasks, three mixers and two optimizers that exist in these tests only: this floor knows nothing of the real ones.
#pragma once

#include "config/spec.h"

namespace fake {

struct Recall {
    std::int64_t length = 64, pairs = 4;
    double power = 0.01;
    bool distinct = true;
};

struct Update {
    std::int64_t length = 64;
    palimpsest::Range overwrites{1, 1};
    bool revert = false;  // counts where a key changes twice
};

struct Delta {
    std::int64_t heads = 1;
    bool normalise = true;
    std::int64_t chunk = 16;  // not identity
    bool fades = false;
    double rate = 0.5;  // counts where it fades
};

struct Conv {
    std::int64_t kernel = 3;
};

inline const palimpsest::Schema<Recall>& recall_schema() {
    using namespace palimpsest;
    static const Schema<Recall> schema = Schema<Recall>()
                                             .field("length", &Recall::length, at_least(2), "positions")
                                             .field("pairs", &Recall::pairs, at_least(1), "pairs")
                                             .field("power", &Recall::power, above(0), "of the gaps")
                                             .field("distinct", &Recall::distinct, "values");
    return schema;
}

inline const palimpsest::Schema<Update>& update_schema() {
    using namespace palimpsest;
    static const Schema<Update> schema = Schema<Update>()
                                             .field("length", &Update::length, at_least(2), "positions")
                                             .field("overwrites", &Update::overwrites, between(0, 10), "changes")
                                             .field("revert", &Update::revert, "the last change")
                                             .used_unless("overwrites", {"0", "1", "0..1"});
    return schema;
}

inline const palimpsest::Schema<Delta>& delta_schema() {
    using namespace palimpsest;
    static const Schema<Delta> schema = Schema<Delta>()
                                            .reads({"model.positions", "model.rescale_output", "run.backend"})
                                            .field("heads", &Delta::heads, at_least(1), "heads")
                                            .field("normalise", &Delta::normalise, "keys")
                                            .caution("false", "the memory may grow")
                                            .field("chunk", &Delta::chunk, at_least(1), "tokens")
                                            .not_identity()
                                            .field("fades", &Delta::fades, "over time")
                                            .field("rate", &Delta::rate, above(0), "of fading")
                                            .used_when("fades", {"true"});
    return schema;
}

inline const palimpsest::Schema<Conv>& conv_schema() {
    using namespace palimpsest;
    static const Schema<Conv> schema = Schema<Conv>().field("kernel", &Conv::kernel, at_least(1), "taps");
    return schema;
}

inline palimpsest::Catalog catalog() {
    palimpsest::Catalog catalog;
    catalog.tasks = {"recall", "update"};
    catalog.mixers = {"conv", "delta", "softmax"};
    catalog.optimizers = {"adamw", "momentum"};
    catalog.task_schema = [](const std::string& name) -> const palimpsest::AnySchema* {
        if (name == "recall") return &recall_schema();
        return name == "update" ? &update_schema() : nullptr;
    };
    catalog.mixer_schema = [](const std::string& name) -> const palimpsest::AnySchema* {
        if (name == "delta" || name == "softmax") return &delta_schema();
        return name == "conv" ? &conv_schema() : nullptr;
    };
    return catalog;
}

// The smallest config that is whole.
inline const std::string small =
    "task:\n"
    "  name: recall\n"
    "  train: [{length: 32, examples: 500}]\n"
    "  test: [{pairs: 8}, {length: 128, pairs: 8}]\n";

inline palimpsest::Experiment parse(const std::string& text, const std::vector<std::string>& overrides = {},
                                    const std::vector<std::string>& config_dirs = {}) {
    return palimpsest::parse_experiment("dir/f.yaml", text, overrides, catalog(), config_dirs);
}

inline palimpsest::RunSpec run(const std::string& text, const std::vector<std::string>& overrides = {}) {
    return parse(text, overrides).runs.at(0).spec;
}

}  // namespace fake
