// What stands in the file of a run (run.h5). Its layout and types: docs/results_format.md.
#pragma once

#include "store/attributes.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

// The states of a run, as its folder tells them (run_folder.h). Their names, in order of their codes, stand in files: never
// renumber them.
enum class RunState { fresh, running, finished, failed, interrupted, lost };
inline constexpr std::string_view state_names[] = {"fresh", "running", "finished", "failed", "interrupted", "lost"};
inline const char* to_string(RunState state) { return state_names[static_cast<std::size_t>(state)].data(); }

inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();  // where nothing was measured

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

// What stands in the file from the beginning of a run on.
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
    std::vector<std::string> policies;  // whether or not they were scored
};

// One start or resumption of a run.
struct RunStart {
    std::string host = {}, device = {};
    std::int64_t from_step = 0;
    Attributes provenance = {};  // as in the header, of what goes on with the run now
    std::string git_diff = {};
    // Set by the writer itself.
    std::string started = {}, ended = {}, reason = {};
    std::int64_t to_step = -1;
    double seconds = not_a_number;
};

// One measurement of time, at a step of the log.
struct SystemRow {
    std::int64_t step = 0;
    double seconds = not_a_number;  // since this start of the run
    float tokens_per_second = std::numeric_limits<float>::quiet_NaN();
    std::int64_t gpu_bytes_peak = -1;  // -1: not measured
};

// A file beside run.h5.
struct Artifact {
    std::string path;  // from the run's folder
    std::int64_t bytes = 0;
    std::string sha256;
};

// All that a file holds: read in one short read-only open, never held, never locked, and written whole. A column has as many rows
// as its steps.
struct RunRecord : RunHeader {
    std::string status, format_version, created, finished;  // finished: time of the end; "" before, as status is
    std::vector<std::int64_t> step;
    std::map<std::string, std::vector<float>> train;  // by metric
    std::vector<std::int64_t> eval_step;
    std::vector<std::int64_t> answers;         // [E, S, C]
    std::vector<double> loss_sum;              // [E, S]
    std::vector<std::string> policy_names;     // `policies` where they were scored, else empty
    std::vector<std::int64_t> policy_answers;  // [P, S, C], empty when not measured
    std::vector<SystemRow> system;
    std::map<std::string, double> summary;
    Attributes summary_attributes;
    std::vector<RunStart> starts;
    std::vector<Artifact> artifacts;
};

}  // namespace palimpsest
