// palimpsest work FOLDER RUN_ID…: trains runs of a sweep's manifest as lanes of one model. `palimpsest sweep` starts this verb as
// its worker and reads its stdout; a person or a scheduler may start it without a parent.
#include "cli/app.h"
#include "cli/output.h"
#include "cli/path_option.h"
#include "core/file.h"
#include "core/log.h"
#include "core/text.h"
#include "sweep/catalog.h"
#include "sweep/execute_pack.h"
#include "sweep/plan.h"
#include "sweep/worker.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>

namespace palimpsest::cli {
namespace {

struct Arguments {
    std::string folder, plan;
    std::vector<std::string> run_ids;
    std::int64_t workers = 1, threads = 0, parent = 0;
};

// Writes a record for the parent. Errors are ignored: where the parent is gone nobody reads, and its death ends the worker anyway.
void tell(const std::string& record) {
    std::fwrite(record.data(), 1, record.size(), stdout);
    std::fflush(stdout);
}

ExitCode work(const Arguments& arguments, const Session& session) {
    wait_without_spinning(session.command);
    static StopRequest request;  // static, because signal handlers write it to the very end
    handle_signals_of_worker(request, static_cast<pid_t>(arguments.parent));
    if (request.stop.load()) return request.exit_code();  // the parent ended before anything began
    if (arguments.parent != 0)
        std::ofstream("/proc/self/oom_score_adj") << 500;  // the kernel should kill this run rather than the sweep

    const std::string path = arguments.plan.empty() ? arguments.folder + "/manifest.yaml" : arguments.plan;
    const Manifest manifest = parse_manifest(path, read_file(path), arguments.folder);
    std::vector<std::string> run_ids;  // each id once
    for (const std::string& id : arguments.run_ids)
        if (!contains(run_ids, id)) run_ids.push_back(id);
    Experiment experiment = planned_experiment(path, manifest, run_ids, registry_catalog());
    std::vector<PackedRun> pack;
    for (PlannedRun& run : experiment.runs) {
        if (arguments.threads > 0) run.spec.run.threads = arguments.threads;
        const auto same = [&](const SweepRun& planned) { return planned.run_id == run.spec.id; };
        pack.push_back({&run, std::find_if(manifest.runs.begin(), manifest.runs.end(), same)->folder});
    }
    ExecuteOptions options;
    options.command = manifest.command;
    options.progress = arguments.parent != 0 ? ProgressMode::never : ProgressMode::automatic;
    options.workers = arguments.workers;
    options.inspected = arguments.parent != 0;  // the sweep has inspected all its runs
    auto last = std::chrono::steady_clock::time_point();
    options.on_progress = [&](const Progress& progress) {
        const auto now = std::chrono::steady_clock::now();
        if (progress.step < progress.steps && now - last < std::chrono::milliseconds(100)) return;
        last = now;
        tell(progress_record(progress));
    };
    options.on_taken = [](const std::string& run_id) { tell(taken_record(run_id)); };
    const std::vector<RunOutcome> outcomes = execute_pack(experiment, pack, manifest.sweep_id, manifest.name, options, request);
    ExitCode code = ExitCode::ok;
    for (const RunOutcome& outcome : outcomes) {
        if (outcome.state == RunState::interrupted) code = request.exit_code();
        if (outcome.state == RunState::failed && code == ExitCode::ok) code = ExitCode::run_failed;
    }
    return code;
}

}  // namespace

void add_work(CLI::App& app, Session& session) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* verb = app.add_subcommand("work", "train runs of a sweep's manifest together (what `sweep` starts)");
    verb->group("");  // not in --help
    add_path(*verb, "FOLDER", arguments->folder, "folder of the sweep")->required();
    verb->add_option("RUN_ID", arguments->run_ids, "runs of one shape")->required();
    add_path(*verb, "--plan", arguments->plan, "a manifest instead of the one in FOLDER");
    verb->add_option("--workers", arguments->workers, "how many train at one time, for the records");
    verb->add_option("--threads", arguments->threads, "instead of run.threads");
    verb->add_option("--parent", arguments->parent, "process whose death ends this one");
    verb->callback([arguments, &session] { session.action = [arguments, &session] { return work(*arguments, session); }; });
}

}  // namespace palimpsest::cli
