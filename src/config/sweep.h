// The sweep block: what it varies, and the runs that it makes. Internal to this floor.
#pragma once

#include "config/build.h"

#include <cstdint>
#include <string>
#include <vector>

namespace palimpsest {

struct SweptKey {
    std::string path;          // "train.lr"
    std::string block;         // "grid", "zip" or "random.draw"
    std::string distribution;  // of random.draw: "uniform", …
    Source source;             // of the key
    std::vector<Value> values;
    std::vector<std::string> names;  // of values that are maps with a name, such as whole tasks; else empty
};

// An `Axis` holds keys that advance together: one key of the grid, all keys of the zip, or all keys that are drawn.
struct Axis {
    std::vector<SweptKey> keys;
    std::size_t size = 0;
};

// An `Exclusion` is one map of `exclude`. A run whose resolved values match all entries is left out; a list stands for any item.
struct Exclusion {
    struct Entry {
        std::string path;
        Source source;
        Value wanted;
    };
    Source source;
    std::vector<Entry> entries;
};

struct Sweep {
    std::vector<Axis> axes;  // the last one changes fastest
    std::vector<Exclusion> exclude;
    std::int64_t seeds = 1;
    Source seeds_source;
    std::int64_t cap = 0;    // 0: none
    std::int64_t lanes = 0;  // 0: auto
    Source source;
};

constexpr std::size_t most_runs = 10'000;
std::size_t points_of(const Sweep& sweep);  // no more than most_runs + 1

Sweep read_sweep(const Value& block, const std::vector<Setting>& settings, Diagnostics& errors);

// Fills the runs and notes of `experiment`, and returns for each run its point of the sweep. `root` has no sweep any more.
std::vector<std::size_t> expand_sweep(const Sweep& sweep, const Value& root, const std::vector<Setting>& settings,
                                      const Catalog& catalog, Experiment& experiment, Diagnostics& errors);
// Returns the config at one point, without the seed of a repetition.
Value tree_at(const Sweep& sweep, const Value& root, std::size_t point, Diagnostics& errors);

// Draws from a distribution of sweep.random.draw: {uniform: [low, high]}, {log_uniform: [low, high]}, {integer: [low, high]},
// {choice: [a, b]}. Value i is a function of (seed, path, i) alone. Returns no values after an error.
std::vector<Value> draw_values(const Value& distribution, const std::string& path, std::int64_t samples, std::int64_t seed,
                               Diagnostics& errors);

}  // namespace palimpsest
