// How long things take: training steps of a run, and the recurrence in its forms.
#pragma once

#include "config/spec.h"
#include "ops/tensor.h"
#include "train/trainer.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace palimpsest::train {

// Waits until the device has done what was asked of it.
void synchronize(at::Device device);

struct Spread {
    double median = 0, lower = 0, upper = 0, least = 0;  // lower and upper: quartiles
};
Spread spread_of(std::vector<double> samples);  // at least one; quartiles between two samples are interpolated

// Milliseconds of each of `repeats` calls after `warmup` ones. `wait` is called before the clock is read (a GPU works on while the
// host goes on); it may be empty.
std::vector<double> time_calls(const std::function<void()>& call, const std::function<void()>& wait, std::int64_t warmup,
                               std::int64_t repeats);

// Steps of a run on one of its training segments.
struct StepBench {
    std::int64_t length = 0, vocabulary = 0, scored = 0;  // T, V, scored positions of a sequence
    std::int64_t batch = 0, parameters = 0;
    int threads = 0;
    StepTimes times;
    double processor = 0;           // milliseconds of processor time of a step, all threads: steadier where others use the machine
    std::int64_t peak_memory = -1;  // bytes while steps were made: of the process, or of the GPU's tensors; -1: not known
};
// `spec` as it is, but for what comes after a step: no evaluation, no checkpoint. `operators` asks for these too; Error(usage)
// on a GPU, where a profiler tells.
StepBench bench_steps(const RunSpec& spec, std::size_t segment, std::int64_t warmup, std::int64_t repeats, bool operators = false);

}  // namespace palimpsest::train
