// A pack of runs, from the locks to DONE.
#include "core/error.h"
#include "core/version.h"
#include "sweep/attendant.h"
#include "sweep/execute.h"
#include "sweep/lane.h"
#include "sweep/machine.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <new>

namespace palimpsest {
namespace {

using Lanes = std::vector<RunLane*>;

RunFailure failure_of(const std::exception& error) {
    const std::string text = error.what();
    // The CPU's allocator throws what any other check of LibTorch throws.
    const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr || dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                        text.find("DefaultCPUAllocator") != std::string::npos;
    // LibTorch puts a stack trace under its messages, of either form.
    const std::string first_lines = text.substr(0, std::min(text.find("\nException raised from"), text.find("\nframe #0: ")));
    return memory ? RunFailure{"oom", "out of memory: " + first_lines, -1} : RunFailure{"error", first_lines, -1};
}

std::unique_ptr<Trainer> trainer_of(const RunSpec& spec, const Lanes& lanes) {
    std::vector<Lane> of_trainer;
    for (RunLane* lane : lanes) of_trainer.push_back(lane->trainer_lane());
    try {
        return std::make_unique<Trainer>(spec, std::move(of_trainer));
    } catch (const Error&) {
        throw;
    } catch (const std::exception& error) {
        throw Error(ExitCode::run_failed, failure_of(error).message);  // no memory for so large a model
    }
}

// Writes down what was thrown. Where the lock is another's by now, nothing more is written.
void end_thrown(RunLane& lane, const std::exception_ptr& thrown, std::int64_t step) {
    RunFailure failure;
    try {
        std::rethrow_exception(thrown);
    } catch (const LostLock& lost) {
        try {
            lane.folder().heartbeat(std::chrono::seconds(0));
        } catch (const Error& error) {
            lane.end_lost(error.what());
            return;
        }
        failure = {"error", fmt::format("stopped with its pack: {}", lost.what()), -1};
    } catch (const std::exception& error) {
        failure = failure_of(error);
    }
    failure.step = step > 0 ? step : -1;
    lane.end_failed(failure);
}

// Trains locked lanes under the eyes of the attendant and writes down how each ended.
void train_lanes(Trainer& trainer, const RunSpec& spec, const Lanes& lanes, PackFacts& pack, const StopRequest& request) {
    std::exception_ptr failure;  // of the pack as a whole
    std::vector<LaneResult> results(lanes.size());
    try {
        std::vector<RunFolder*> folders;
        for (RunLane* lane : lanes) folders.push_back(&lane->folder());
        Attendant attendant(folders, request, [&] {
            for (RunLane* lane : lanes) lane->close_for_good(request);
        });
        const std::int64_t from = trainer.resume();
        pack.slices = trainer.slices();
        if (spec.eval.policies) pack.policy_answers = trainer.policy_answers();
        for (std::size_t i = 0; i < lanes.size(); ++i) {
            if (trainer.failure(i)) continue;
            try {
                lanes[i]->open(trainer, from, [&attendant] { return attendant.problem(); });
            } catch (const std::exception&) {
                trainer.fail_lane(i, std::current_exception());
            }
        }
        log_debug("palimpsest {} at {}, LibTorch {}, {} on {}", build_info().version, short_commit(), libtorch_version(), cpu_model(), host_name());
        results = trainer.run(request.stop);
    } catch (const std::exception&) {
        failure = std::current_exception();
    }
    for (std::size_t i = 0; i < lanes.size(); ++i) {
        std::exception_ptr thrown = failure ? failure : results[i].failure;
        try {
            if (!thrown) lanes[i]->end(results[i], request);
        } catch (const std::exception&) {
            thrown = std::current_exception();
        }
        if (thrown) end_thrown(*lanes[i], thrown, results[i].step);
    }
}

}  // namespace

std::vector<RunOutcome> execute_pack(const Experiment& experiment, const std::vector<PackedRun>& runs, const std::string& sweep,
                                     const std::string& label, const ExecuteOptions& options, const StopRequest& request) {
    PackFacts pack{experiment, options, sweep, label, runs.size(), {}, {}};
    std::vector<std::unique_ptr<RunLane>> all;
    Lanes lanes;
    for (const PackedRun& run : runs) {
        all.push_back(std::make_unique<RunLane>(*run.run, run.folder, pack));
        if (all.back()->wanted()) lanes.push_back(all.back().get());
    }
    if (!lanes.empty()) {
        const RunSpec& spec = runs.front().run->spec;
        // Before anything is created: the trainer refuses what does not fit together.
        std::unique_ptr<Trainer> trainer = trainer_of(spec, lanes);
        const NeedsClosing closing;  // from the locks on
        const std::size_t before = lanes.size();
        std::erase_if(lanes, [](RunLane* lane) { return !lane->lock(); });
        if (!lanes.empty() && lanes.size() < before) trainer = trainer_of(spec, lanes);
        pack.lanes = lanes.size();
        if (!lanes.empty()) train_lanes(*trainer, spec, lanes, pack, request);
    }
    std::vector<RunOutcome> outcomes;
    for (const auto& lane : all) outcomes.push_back(lane->outcome());
    return outcomes;
}

RunOutcome execute_run(const PlannedRun& run, const Experiment& experiment, const std::string& folder, const std::string& sweep,
                       const std::string& label, const ExecuteOptions& options, const StopRequest& request) {
    return execute_pack(experiment, {{&run, folder}}, sweep, label, options, request).front();
}

}  // namespace palimpsest
