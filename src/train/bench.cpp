#include "train/bench.h"

#include "core/error.h"
#include "train/trainer_impl.h"

#include <ATen/detail/CUDAHooksInterface.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <malloc.h>
#include <string>

// LibTorch tells what a GPU's allocator holds without CUDA's own headers since 2.10.
#include <torch/version.h>
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 10
#include <c10/core/CachingDeviceAllocator.h>
#define PALIMPSEST_KNOWS_GPU_MEMORY
#endif

namespace palimpsest {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point then) { return std::chrono::duration<double, std::milli>(Clock::now() - then).count(); }

double processor_milliseconds() {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// The most memory since reset_peak(): resident of this process (Linux), or in use by tensors on the GPU; -1 where nobody tells.
void reset_peak(at::Device device) {
    if (device.is_cpu()) {
        ::malloc_trim(0);
        std::ofstream("/proc/self/clear_refs") << "5";
    }
#ifdef PALIMPSEST_KNOWS_GPU_MEMORY
    if (device.is_cuda()) c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
#endif
}

std::int64_t peak(at::Device device) {
#ifdef PALIMPSEST_KNOWS_GPU_MEMORY
    if (device.is_cuda()) return c10::getDeviceAllocator(device.type())->getDeviceStats(device.index()).allocated_bytes[0].peak;
#endif
    if (!device.is_cpu()) return -1;
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
    return -1;
}

}  // namespace

StepTimes Trainer::Impl::time_steps(std::int64_t warmup, std::int64_t repeats, bool operators) {
    const auto wait = [this] { train::synchronize(runtime.device); };
    StepTimes times;
    const auto take = [&] {
        window.take([&](std::int64_t at_step, std::size_t, std::int64_t) {
            if (times.not_finite == 0) times.not_finite = at_step;
        });
    };
    const auto one_step = [&] {
        if (window.full()) take();
        train_step(step++);
    };
    Clock::time_point then;
    const auto split = [&](StepPart part) {
        wait();
        times.parts[static_cast<std::size_t>(part)].push_back(milliseconds_since(then));
        then = Clock::now();
    };
    const auto split_step = [&] {
        then = Clock::now();
        one_step();
    };
    static_cast<void>(train::time_calls(one_step, wait, warmup, 0));
    if (runtime.device.is_cuda()) times.total = train::time_calls(one_step, wait, 0, repeats);
    part_done = split;
    const std::vector<double> divided = train::time_calls(split_step, wait, 0, repeats);
    part_done = nullptr;
    if (times.total.empty()) times.total = divided;
    take();
    if (!operators) return times;
    times.operators = train::operator_times([&] {
        for (std::int64_t i = 0; i < repeats; ++i) one_step();
    });
    for (train::OperatorTime& time : times.operators) {
        time.milliseconds /= static_cast<double>(repeats);
        time.calls /= static_cast<double>(repeats);
    }
    return times;
}

namespace train {

void synchronize(at::Device device) {
    if (device.is_cuda()) at::detail::getCUDAHooks().deviceSynchronize(device.index());
}

Spread spread_of(std::vector<double> samples) {
    PALIMPSEST_ASSERT(!samples.empty(), "a spread of no samples");
    std::sort(samples.begin(), samples.end());
    const auto at = [&](double share) {
        const double place = share * static_cast<double>(samples.size() - 1), below = std::floor(place);
        const auto i = static_cast<std::size_t>(below);
        return samples[i] + (place - below) * (samples[std::min(i + 1, samples.size() - 1)] - samples[i]);
    };
    return {at(0.5), at(0.25), at(0.75), samples.front()};
}

std::vector<double> time_calls(const std::function<void()>& call, const std::function<void()>& wait, std::int64_t warmup,
                               std::int64_t repeats) {
    std::vector<double> milliseconds;
    for (std::int64_t i = 0; i < warmup; ++i) call();
    for (std::int64_t i = 0; i < repeats; ++i) {
        if (wait) wait();
        const Clock::time_point then = Clock::now();
        call();
        if (wait) wait();
        milliseconds.push_back(milliseconds_since(then));
    }
    return milliseconds;
}

StepBench bench_steps(const RunSpec& spec, std::size_t segment, std::int64_t warmup, std::int64_t repeats, bool operators) {
    PALIMPSEST_ASSERT(segment < spec.task.train.size() && repeats > 0, "segment {}, repeats {}", segment, repeats);
    if (operators && spec.run.device == Device::cuda)
        fail(ExitCode::usage, "operators can be timed on the CPU only; on a GPU use its profiler (nsys, ncu)");
    RunSpec run = spec;
    run.train.epochs = 0;
    run.train.steps = warmup + 3 * repeats;
    // The other segments stay where they cost nothing: the model is as long as the longest of them.
    run.task.valid = spec.task.train;
    for (std::vector<SegmentSpec>* list : {&run.task.valid, &run.task.test})
        for (SegmentSpec& other : *list) other.examples = 1;
    run.task.train = {spec.task.train[segment]};
    run.task.train.front().examples = run.train.steps * run.train.batch;  // fixed data: no smaller batch at the end of an epoch

    const Segments segments = compile_segments(run.task);
    const Shape& shape = segments.train.front().program->shape();
    StepBench out;
    out.length = shape.length;
    out.vocabulary = segments.vocabulary;
    out.scored = shape.queries * shape.vocabulary.value_tokens;
    out.batch = run.train.batch;

    Lane lane;
    lane.values = lane_values(run);
    Trainer trainer(run, {lane});
    out.parameters = trainer.parameter_count();
    const Runtime runtime = apply_runtime(run.run);
    out.threads = runtime.threads;
    reset_peak(runtime.device);
    const std::int64_t broken_early = warmup > 0 ? trainer.time_steps(warmup, 0, false).not_finite : 0;
    const double before = processor_milliseconds();
    out.times = trainer.time_steps(0, repeats, false);
    out.processor = (processor_milliseconds() - before) / static_cast<double>(repeats * (runtime.device.is_cuda() ? 2 : 1));
    if (operators) out.times.operators = trainer.time_steps(0, repeats, true).operators;
    out.peak_memory = peak(runtime.device);
    if (const std::int64_t step = broken_early > 0 ? broken_early : out.times.not_finite; step > 0)
        fail(ExitCode::run_failed, "step {}: the loss or its gradient is not finite: such a run has no speed", step);
    return out;
}

}  // namespace train
}  // namespace palimpsest
