#include "sweep/inspect.h"

#include "core/error.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/thread.h"
#include "model/model.h"
#include "sweep/pack.h"
#include "sweep/plan.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/memory.h"
#include "train/overlap.h"
#include "train/runtime.h"

#include <algorithm>
#include <map>
#include <optional>

namespace palimpsest {
namespace {

// Answers by key, each found once. A refusal is an answer too.
template <class T>
class Memo {
public:
    struct Answer {
        std::optional<T> value;
        std::string problem;  // where there is no value
    };

    template <class F>
    const Answer& operator()(const std::string& key, const F& find) {
        const auto [entry, is_new] = known_.try_emplace(key);
        if (is_new) {
            try {
                entry->second.value = find();
            } catch (const Error& error) {
                entry->second.problem = error.what();
            }
        }
        return entry->second;
    }

private:
    std::map<std::string, Answer> known_;
};

std::string key_of(const RunSpec& spec, std::initializer_list<const char*> sections) {
    Value key = Value::map();
    for (const char* section : sections) key.set(section, *spec.resolved.find(section));
    return emit_flow(key);
}

class Inspection {
public:
    Inspection(const std::vector<const PlannedRun*>& runs, const InspectOptions& options) : lanes_(options.lanes) {
        for (const PlannedRun* run : runs)
            if (most_lanes(lanes_, run->spec.run.device) > 1) ++alike_[pack_shape(run->spec)];
    }

    Inspected look_at(const PlannedRun& run, const std::string& folder) {
        const RunSpec& spec = run.spec;
        Inspected out;
        std::vector<std::string> problems;
        // What the config could not know is told at the key that can mend it, as every error of a config is.
        const auto note = [&](const std::string& problem, const std::string& key) {
            if (problem.empty()) return;
            problems.push_back(at_its_place(spec, key, problem));
        };
        const auto attempt = [&](const std::string& key, const auto& action) {
            try {
                action();
            } catch (const Error& error) {
                note(error.what(), key);
            }
        };
        attempt("run", [&] { train::check_runtime(spec.run); });
        const auto& segments = segments_(key_of(spec, {"task"}), [&] { return train::compile_segments(spec.task); });
        note(segments.problem, "task");
        if (segments.value) attempt("train", [&] { measure(spec, *segments.value, out.size, note); });

        const bool starts = folder.empty() || decide(RunFolder(folder)).trains();
        const bool begun = !folder.empty() && !train::checkpoint_steps(RunFolder(folder).file("checkpoints")).empty();
        if (problems.empty() && starts && !begun) {
            const auto& overlap =
                overlap_(train::overlap_key(spec), [&] { return train::overlap_problem(spec, *segments.value, usable_threads()); });
            note(overlap.value ? *overlap.value : overlap.problem, "task");
        }
        if (starts) out.problem = join(problems, "\n");
        return out;
    }

private:
    template <class F>
    void measure(const RunSpec& spec, const train::Segments& segments, RunSize& size, const F& note) {
        const std::string key = key_of(spec, {"task", "model", "mixers", "run"});
        const ModelShape shape{segments.vocabulary, segments.longest};
        const auto& parameters = parameters_(key, [&] { return count_parameters(spec, shape); });
        note(parameters.problem, "model");
        size.state_length = segments.longest;
        size.steps = train::count_steps(segments.train, spec.train, spec.data).steps;
        if (!parameters.value) return;
        size.parameters = parameters.value->trained;
        const std::int64_t all = parameters.value->trained + parameters.value->fixed;
        const train::MemoryProblem problem =
            train::memory_problem(train::memory_needs(spec, segments, all, lanes_of(spec)), memory_);
        note(problem.text, problem.key);
        if (!problem.text.empty()) return;
        const auto& state = states_(key, [&] { return measure_state(spec, shape); });
        note(state.problem, "model");
        if (state.value) size.state_bytes = *state.value;
    }

    std::int64_t lanes_of(const RunSpec& spec) const {
        const std::int64_t most = most_lanes(lanes_, spec.run.device);
        return most > 1 ? std::min(most, alike_.at(pack_shape(spec))) : 1;
    }

    const std::int64_t lanes_;
    const double memory_ = usable_memory();
    std::map<std::string, std::int64_t> alike_;  // runs of each shape
    Memo<train::Segments> segments_;
    Memo<ParameterCount> parameters_;
    Memo<std::int64_t> states_;
    Memo<std::string> overlap_;
};

}  // namespace

std::vector<Inspected> inspect(const std::vector<const PlannedRun*>& runs, const InspectOptions& options) {
    PALIMPSEST_ASSERT(options.folders.empty() || options.folders.size() == runs.size(), "{} folders of {} runs",
                      options.folders.size(), runs.size());
    Inspection inspection(runs, options);
    std::vector<Inspected> out;
    for (std::size_t i = 0; i < runs.size(); ++i)
        out.push_back(inspection.look_at(*runs[i], options.folders.empty() ? "" : options.folders[i]));
    return out;
}

std::vector<RunSize> inspect_runs(const std::vector<PlannedRun>& runs, const InspectOptions& options) {
    std::vector<const PlannedRun*> pointers;
    for (const PlannedRun& run : runs) pointers.push_back(&run);
    std::vector<RunSize> sizes;
    std::vector<std::string> lines;
    std::map<std::string, std::size_t> told;
    const std::vector<Inspected> inspected = inspect(pointers, options);
    for (std::size_t i = 0; i < runs.size(); ++i) {
        sizes.push_back(inspected[i].size);
        const std::string& problem = inspected[i].problem;
        if (problem.empty() || !told.try_emplace(problem, i).second) continue;
        const std::string where = varied_text(runs[i].varied);
        lines.push_back(where.empty() ? problem : fmt::format("{} (run {})", problem, where));
    }
    if (!lines.empty()) throw Error(ExitCode::usage, join(lines, "\n"));
    return sizes;
}

}  // namespace palimpsest
