// What stands in the file of a run (run.h5). Its layout and types: docs/results_format.md.
#pragma once

#include "store/attributes.h"

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace palimpsest {

struct Metric {
    std::string name, units, long_name;  // name: lower case letters, digits, underscore
};

// One row of the joint slice table: segment x overwrites x distance bucket.
struct Slice {
    std::int64_t split = 0;    // 0 valid, 1 test
    std::int64_t segment = 0;  // index in that split's list
    std::int64_t overwrites = 0;
    std::int64_t distance_from = 0, distance_to = 0;  // inclusive
    std::string label;
};

struct RunHeader {
    std::string run_id, sweep_id, title;
    std::string resolved_yaml, source_yaml;
    std::vector<std::string> overrides;
    Attributes config;      // flattened keys of the resolved config, native types
    Attributes provenance;  // of the first start: commit, dirty, command, versions, hardware, seeds, determinism flags
    std::string git_diff;
    std::vector<Metric> train_metrics;  // f4 columns over /train/step
    std::vector<Slice> slices;
    std::vector<std::string> answer_classes;
    std::vector<std::string> policies;
};

// One start or resumption of a run.
struct RunStart {
    std::string host = {}, device = {};
    std::int64_t from_step = 0;
    Attributes provenance = {};  // as in the header, of what goes on with the run now
    std::string git_diff = {};   // not read back
    // Written by the writer itself.
    std::string started = {}, ended = {}, reason = {};
    std::int64_t to_step = -1;
    double seconds = std::numeric_limits<double>::quiet_NaN();
};

// Everything `show`, `compare` and sweep collection need, read in one short read-only open, never held, never locked.
struct RunRecord {
    std::string run_id, sweep_id, title, status, format_version;
    std::string resolved_yaml;
    Attributes config, provenance;
    std::vector<std::int64_t> step;
    std::map<std::string, std::vector<float>> train;  // by metric
    std::vector<std::int64_t> eval_step;
    std::vector<Slice> slices;
    std::vector<std::string> answer_classes, policy_names;
    std::vector<std::int64_t> answers;         // [E, S, C]
    std::vector<double> loss_sum;              // [E, S]
    std::vector<std::int64_t> policy_answers;  // [P, S, C], empty when not measured
    std::map<std::string, double> summary;
    Attributes summary_attributes;
    std::vector<double> tokens_per_second;
    std::vector<RunStart> starts;
};

}  // namespace palimpsest
