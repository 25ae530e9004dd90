#include "sweep/inspect.h"

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "model/model.h"
#include "sweep/plan.h"
#include "train/data.h"

#include <map>

namespace palimpsest {
namespace {

// Runs that differ only in lane values and in how long they train are of one size.
std::string shape_key(const RunSpec& spec) {
    Value key = Value::map();
    for (const char* section : {"task", "model", "mixers"}) key.set(section, *spec.resolved.find(section));
    return emit_flow(key);
}

RunSize measure(RunSpec spec) {
    if (spec.run.backend == OpsBackend::automatic) spec.run.backend = OpsBackend::reference;  // sizes are the same, and nothing is logged
    const train::Segments segments = train::compile_segments(spec.task);
    Model model(spec, {segments.vocabulary, segments.longest}, {{static_cast<std::uint64_t>(spec.seed), spec.train.init_scale}}, at::kCPU);
    RunSize size;
    size.parameters = model.parameters().count();
    size.state_length = segments.longest;
    size.state_bytes = model.state_bytes(segments.longest);
    return size;
}

}  // namespace

std::vector<RunSize> inspect_runs(const std::vector<PlannedRun>& runs) {
    std::map<std::string, RunSize> known;
    std::vector<std::pair<std::string, std::string>> problems;  // message, first run that has it
    std::vector<RunSize> sizes;
    for (const PlannedRun& run : runs) {
        RunSize size;
        try {
            const auto [entry, is_new] = known.try_emplace(shape_key(run.spec));
            if (is_new) entry->second = measure(run.spec);
            size = entry->second;
            size.steps = train::BatchOrder(train::compile_segments(run.spec.task).train, run.spec.train, run.spec.data).steps();
        } catch (const Error& error) {
            bool told = false;
            for (const auto& [message, where] : problems) told = told || message == error.what();
            if (!told) problems.emplace_back(error.what(), varied_text(run.varied));
        } catch (const std::exception& error) {
            // No memory for it, here and now: that is for the run to find out, and stops no other.
            const std::string message = error.what();
            log_warning("the size of {} is not known: {}", short_id(run.spec.id), message.substr(0, message.find('\n')));
        }
        sizes.push_back(size);
    }
    if (problems.empty()) return sizes;
    std::vector<std::string> lines;
    for (const auto& [message, where] : problems) lines.push_back(where.empty() ? message : fmt::format("{} (run {})", message, where));
    throw Error(ExitCode::usage, join(lines, "\n"));
}

}  // namespace palimpsest
