// Small runs, built without YAML files.
#pragma once

#include "config/spec.h"
#include "task/task.h"
#include "temporary_folder.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

#include <atomic>
#include <string>
#include <vector>

#include "catch.h"

namespace palimpsest::testing {

SegmentSpec segment(const std::string& task, const std::string& options, std::int64_t examples);
// mqar, one segment of length 32 with 2 pairs, vocabulary 32; base_conv then softmax of width 16; batch 8, 12 steps.
RunSpec small_run();

Lane lane_of(const RunSpec& spec);

// Remembers what it was told; may raise a stop flag after a number of rows.
struct Recorder : RunSink {
    std::vector<std::int64_t> row_steps;
    std::vector<std::vector<float>> rows;
    std::vector<EvalResult> evals;
    std::vector<std::string> warnings, checkpoints;
    std::atomic<bool>* stop = nullptr;
    std::int64_t stop_at = 0;

    void train_row(std::int64_t step, std::span<const float> metrics) override;
    void eval(const EvalResult& result) override { evals.push_back(result); }
    void checkpoint_written(const std::string& path, std::int64_t) override { checkpoints.push_back(path); }
    void warning(const std::string& message) override { warnings.push_back(message); }
};

// Bytes of all arrays are the same.
bool same_arrays(const train::Checkpoint& a, const train::Checkpoint& b, const std::string& prefix = "");
// Largest absolute difference over the arrays whose names begin with `prefix`.
double largest_difference(const train::Checkpoint& a, const train::Checkpoint& b, const std::string& prefix);

// Gives a checkpoint the header of format 1, and a checksum that fits.
void make_first_format(const std::string& path);

inline const std::atomic<bool> never_stop{false};

}  // namespace palimpsest::testing
