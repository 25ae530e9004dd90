// palimpsest sweep CONFIG: all runs of a grid, in worker processes. Finished ones are skipped, those that were cut off go on.
#include "cli/config_arguments.h"
#include "cli/output.h"
#include "core/log.h"
#include "core/text.h"
#include "sweep/plan.h"
#include "sweep/report.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

namespace palimpsest::cli {
namespace {

ExitCode sweep(const ConfigArguments& arguments, bool fail_fast, std::int64_t workers, const Session& session) {
    if (!wants_telling(arguments)) wait_without_spinning(session.command);  // first: it begins the program anew
    const Experiment experiment = load_config(arguments.path, arguments.overrides);
    if (only_tells(arguments, experiment)) return ExitCode::ok;
    static StopRequest request;  // signal handlers write it to the very end
    handle_signals(request);
    ExecuteOptions options;
    options.results = arguments.results;
    options.command = session.command;
    options.progress = progress_mode(arguments.progress);
    options.fail_fast = fail_fast;
    options.workers = workers;
    const std::vector<RunOutcome> outcomes = execute_sweep(experiment, options, request);

    const std::string folder = sweep_folder(options.results, experiment.name);
    const Manifest manifest = read_manifest(folder);
    const std::vector<CollectedRun> collected = collect(manifest.runs);
    print(result_table(collected, manifest.varied));
    const auto count = [&](RunState state) {
        return std::count_if(outcomes.begin(), outcomes.end(), [&](const RunOutcome& outcome) { return outcome.state == state; });
    };
    const auto total = static_cast<std::int64_t>(outcomes.size());
    if (const auto failed = count(RunState::failed); failed > 0)
        log_info("{} of {} failed:\n{}", failed, plural(total, "run"), failure_table(outcomes));
    if (const auto running = count(RunState::running); running > 0) log_info("{} left to other processes", plural(running, "run"));
    write_sweep_file(folder, manifest.sweep_id, manifest.yaml, collected);  // last: on a full disk it fails too
    const auto cut_off = total - count(RunState::finished) - count(RunState::failed) - count(RunState::running);
    if (request.stop.load() && count(RunState::finished) < total) {
        log_info("stopped; {} of {} finished\nresume with: {}", count(RunState::finished), plural(total, "run"), shell_line(session.command));
        return request.exit_code();
    }
    if (cut_off > 0) log_info("{} of {} cut off\nresume with: {}", cut_off, plural(total, "run"), shell_line(session.command));
    log_info("results: {}", folder);
    return count(RunState::failed) + cut_off > 0 ? ExitCode::sweep_partial : ExitCode::ok;
}

}  // namespace

void add_sweep(CLI::App& app, Session& session) {
    auto arguments = std::make_shared<ConfigArguments>();
    auto fail_fast = std::make_shared<bool>(false);
    auto workers = std::make_shared<std::int64_t>(1);
    CLI::App* verb = app.add_subcommand("sweep", "train all runs of a config's sweep block; run it again to go on where it stopped");
    add_config(*verb, *arguments);
    add_execution(*verb, *arguments);
    verb->add_option("-j,--jobs", *workers, "runs at one time, each in a process of its own; the cores are divided among them")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1024}))
        ->capture_default_str();
    verb->add_flag("--fail-fast,!--keep-going", *fail_fast, "start no more runs after the first that fails, or go on with the others (the default)");
    verb->callback([=, &session] { session.action = [=, &session] { return sweep(*arguments, *fail_fast, *workers, session); }; });
}

}  // namespace palimpsest::cli
