// palimpsest resume RUN: goes on with a run exactly as its folder has it, whatever became of the config that it came from.
#include "cli/config_arguments.h"
#include "cli/find.h"
#include "cli/output.h"
#include "cli/path_option.h"
#include "core/file.h"
#include "core/text.h"
#include "store/run_reader.h"
#include "sweep/catalog.h"
#include "sweep/execute_pack.h"
#include "sweep/plan.h"
#include "train/checkpoint.h"
#include "train/runtime.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>

namespace palimpsest::cli {
namespace {

struct Arguments {
    std::string run, results = "results", progress = "auto";
};

// Returns the threads of the checkpoint from which a run goes on, or 0 where they are not known. With as many threads the run goes
// on bit for bit, even if it belongs to a sweep whose workers shared the cores.
std::int64_t threads_before(const std::string& checkpoints) {
    const std::optional<train::Checkpoint> newest = train::newest_checkpoint(checkpoints);
    const std::string threads = newest ? newest->fact("threads") : "";
    return threads.empty()
               ? 0
               : std::min<std::int64_t>(std::stoll(threads), train::most_threads());  // the run may come from a larger machine
}

// Returns the sweep that the run belongs to, or "" where it was started alone. If its record is lost, the plan beside it tells.
std::string sweep_of(const std::string& folder, const std::string& run_id) {
    if (file_exists(folder + "/run.h5") && RunFolder(folder).lost_record().empty())
        return read_run(folder + "/run.h5", results_only).sweep_id;
    const std::string parent = folder + "/..";
    if (!has_manifest(parent)) return "";
    const Manifest manifest = read_manifest(parent);
    const bool planned =
        std::any_of(manifest.runs.begin(), manifest.runs.end(), [&](const SweepRun& run) { return run.run_id == run_id; });
    return planned ? manifest.sweep_id : "";
}

ExitCode resume(const Arguments& arguments, const Session& session) {
    const std::string folder = find_run(arguments.run, arguments.results), path = folder + "/config.yaml";
    const Experiment experiment = parse_experiment(path, read_file(path), {}, registry_catalog(), {});
    PlannedRun planned = experiment.runs.front();
    const std::string name = std::filesystem::path(folder).filename().string(), digits = name.substr(0, name.find('-'));
    if (digits.size() < 8 || !planned.spec.id.starts_with(digits))  // folders of older versions carry eight digits
        fail(ExitCode::usage,
             "'{}' describes the run {}, but its folder is '{}': was it edited? Start it anew with `palimpsest run`", path,
             planned.spec.id, name);
    const std::string sweep = sweep_of(folder, planned.spec.id);
    wait_without_spinning(session.command);
    if (planned.spec.run.threads == 0) planned.spec.run.threads = threads_before(folder + "/checkpoints");
    static StopRequest request;
    handle_signals(request);
    ExecuteOptions options;
    options.command = shell_line(session.command);
    options.progress = progress_mode(arguments.progress);
    return tell_outcome(execute_pack(experiment, {{&planned, folder}}, sweep, human_name(planned), options, request).front(),
                        request);
}

}  // namespace

void add_resume(CLI::App& app, Session& session) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* verb = app.add_subcommand("resume", "go on with a run from its last checkpoint");
    verb->add_option("RUN", arguments->run, "folder of a run, its name below the results, or the beginning of its id")->required();
    add_path(*verb, "--results", arguments->results, "where to look for a name");
    add_progress(*verb, arguments->progress);
    verb->callback([arguments, &session] { session.action = [arguments, &session] { return resume(*arguments, session); }; });
}

}  // namespace palimpsest::cli
