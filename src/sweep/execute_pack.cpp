#include "sweep/execute_pack.h"

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "core/version.h"
#include "store/run_lock.h"
#include "sweep/attendant.h"
#include "sweep/inspect.h"
#include "sweep/machine.h"
#include "sweep/pack.h"
#include "sweep/session.h"

#include <exception>
#include <map>
#include <memory>

namespace palimpsest {
namespace {

using Sessions = std::vector<RunSession*>;

std::unique_ptr<Trainer> trainer_of(const RunSpec& spec, const Sessions& lanes) {
    std::vector<Lane> of_trainer;
    for (RunSession* lane : lanes) of_trainer.push_back(lane->trainer_lane());
    try {
        return std::make_unique<Trainer>(spec, std::move(of_trainer));
    } catch (const Error&) {
        throw;
    } catch (const std::exception&) {
        throw Error(ExitCode::run_failed, failure_of(std::current_exception()).message);  // no memory for so large a model
    }
}

// Trains locked lanes of one step and writes down how each ended. `trainer`: built for just these lanes, or none.
void train_lanes(std::unique_ptr<Trainer> trainer, const Sessions& lanes, const RunSpec& spec, PackFacts& pack,
                 const StopRequest& request) {
    pack.lanes = lanes.size();
    try {
        if (!trainer) trainer = trainer_of(spec, lanes);
        const std::int64_t from = trainer->resume();
        pack.policy_answers = spec.eval.policies ? trainer->policy_answers() : std::vector<std::int64_t>();
        for (std::size_t i = 0; i < lanes.size(); ++i) {
            if (trainer->failure(i)) continue;
            try {
                lanes[i]->open(*trainer, from);
            } catch (const std::exception&) {
                trainer->fail_lane(i, std::current_exception());
            }
        }
        log_debug("palimpsest {} at {}, LibTorch {}, {} on {}", build_info().version, short_commit(), libtorch_version(),
                  cpu_model(), host_name());
        const std::vector<LaneResult> results = trainer->run(request.stop);
        for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i]->write_end(results[i], request);
    } catch (const std::exception&) {
        for (RunSession* lane : lanes) lane->fail(std::current_exception());
    }
}

// What `action` says of the lane; false where it throws, which ends that lane alone.
bool takes_part(RunSession* lane, bool (RunSession::*action)()) {
    try {
        return (lane->*action)();
    } catch (const std::exception&) {
        lane->fail(std::current_exception());
        return false;
    }
}

void check_shapes(const std::vector<PackedRun>& runs) {
    const RunSpec& first = runs.front().run->spec;
    for (const PackedRun& run : runs) {
        const RunSpec& other = run.run->spec;
        if (pack_shape(other) == pack_shape(first)) continue;
        std::vector<std::string> keys;
        const Attributes here = flat_config(first.resolved), there = flat_config(other.resolved);
        for (const auto& [one, opposite] : {std::pair(&here, &there), std::pair(&there, &here)})
            for (const auto& [key, value] : *one) {
                const Attribute* same = find(*opposite, key);
                if ((same == nullptr || *same != value) && !is_lane_key(key) && !contains(keys, key)) keys.push_back(key);
            }
        fail(ExitCode::usage,
             "the runs {} and {} cannot train as lanes of one model: they differ in {}; lanes may differ in {} alone",
             short_id(first.id), short_id(other.id), join(keys, ", "), join(lane_keys(), ", "));
    }
}

// Leaves the lanes that can start here. Throws the reasons where none can.
void keep_fit_lanes(Sessions& lanes) {
    std::vector<const PlannedRun*> planned;
    InspectOptions options{static_cast<std::int64_t>(lanes.size()), {}};
    for (const RunSession* lane : lanes) {
        planned.push_back(&lane->run());
        options.folders.push_back(lane->folder().path());
    }
    const std::vector<Inspected> inspected = inspect(planned, options);
    Sessions fit;
    std::vector<std::string> problems;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
        const std::string& problem = inspected[i].problem;
        if (problem.empty()) fit.push_back(lanes[i]);
        else if (!contains(problems, problem)) problems.push_back(problem);
    }
    if (fit.empty()) throw Error(ExitCode::usage, join(problems, "\n"));
    for (std::size_t i = 0; i < lanes.size(); ++i)
        if (!inspected[i].problem.empty()) lanes[i]->refuse(inspected[i].problem);
    lanes = std::move(fit);
}

}  // namespace

std::vector<RunOutcome> execute_pack(const Experiment& experiment, const std::vector<PackedRun>& runs, const std::string& sweep,
                                     const std::string& label, const ExecuteOptions& options, const StopRequest& request) {
    check_shapes(runs);
    PackFacts pack{experiment, options, sweep, label, runs.size(), {}};
    std::vector<std::unique_ptr<RunSession>> all;
    Sessions lanes;
    for (const PackedRun& run : runs) {
        all.push_back(std::make_unique<RunSession>(*run.run, run.folder, pack));
        if (takes_part(all.back().get(), &RunSession::wanted)) lanes.push_back(all.back().get());
    }
    if (!lanes.empty() && !options.inspected) keep_fit_lanes(lanes);
    if (!lanes.empty()) {
        const RunSpec& spec = runs.front().run->spec;
        // Before anything is created: the trainer refuses what does not fit together.
        std::unique_ptr<Trainer> trainer = trainer_of(spec, lanes);
        const NeedsClosing closing;  // from the locks on
        const std::size_t built_for = lanes.size();
        std::erase_if(lanes, [](RunSession* lane) { return !takes_part(lane, &RunSession::take); });
        const Attendant attendant(lanes, request);
        // Lanes make their steps together, so runs that stand at different steps train one group after the other. One that is alone
        // need not be asked.
        std::map<std::int64_t, Sessions> by_step;
        for (RunSession* lane : lanes) by_step[lanes.size() > 1 ? resume_step(lane->folder()) : 0].push_back(lane);
        for (const auto& [step, group] : by_step) {
            if (group.size() < built_for) trainer.reset();
            if (by_step.size() > 1) log_info("{} from step {}", plural(static_cast<std::int64_t>(group.size()), "run"), step);
            train_lanes(std::move(trainer), group, spec, pack, request);
        }
    }
    std::vector<RunOutcome> outcomes;
    for (const auto& lane : all) outcomes.push_back(lane->outcome());
    return outcomes;
}

}  // namespace palimpsest
