// palimpsest sweep CONFIG: trains all runs of a grid in worker processes. Finished runs are skipped, interrupted ones go on.
#include "cli/config_arguments.h"
#include "cli/output.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "store/sweep_file.h"
#include "sweep/execute.h"
#include "sweep/plan.h"
#include "sweep/report.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

namespace palimpsest::cli {
namespace {

struct Arguments : ConfigArguments {
    bool fail_fast = false, keep_going = false;
    std::int64_t workers = 1;
};

ExitCode sweep(const Arguments& arguments, const Session& session) {
    if (arguments.fail_fast && arguments.keep_going)
        fail(ExitCode::usage, "--fail-fast and --keep-going exclude each other; give one of them");
    if (!wants_telling(arguments)) wait_without_spinning(session.command);  // comes first, because it starts the program anew
    const Experiment experiment = load_config(arguments.path, arguments.overrides);
    if (only_tells(arguments, experiment)) return ExitCode::ok;
    static StopRequest request;  // static, because signal handlers write it to the very end
    handle_signals(request);
    ExecuteOptions options;
    options.results = arguments.results;
    options.command = shell_line(session.command);
    options.progress = progress_mode(arguments.progress);
    options.fail_fast = arguments.fail_fast;
    options.workers = arguments.workers;
    const SweepResult result = execute_sweep(experiment, options, request);
    const std::vector<RunOutcome>& outcomes = result.outcomes;
    const std::string folder = sweep_folder(options.results, experiment.name);

    // A full disk, or a stdout without a reader (| tee, ended by the same Ctrl-C), must not cost the rest of the report.
    bool reported = true;
    const auto attempt = [&](const auto& action) {
        try {
            action();
        } catch (const Error& error) {
            log_error("{}", error.what());
            reported = false;
        }
    };
    const std::vector<CollectedRun> collected = collect(result.plan.runs, results_and_questions);
    attempt([&] { write_sweep_file(folder, result.plan.sweep_id, manifest_yaml(result.plan), collected); });
    ResultTable table;
    attempt([&] {
        table = result_table(collected, swept_keys(result.plan.runs), stdout_width());
        print(table.text);
    });
    if (!table.legend.empty()) log_info("{}", table.legend);
    const auto count = [&](RunState state) {
        return std::count_if(outcomes.begin(), outcomes.end(), [&](const RunOutcome& outcome) { return outcome.state == state; });
    };
    const auto total = static_cast<std::int64_t>(outcomes.size());
    if (const auto failed = count(RunState::failed); failed > 0)
        log_info("{} of {} failed:\n{}", failed, plural(total, "run"), failure_table(outcomes));
    if (const auto running = count(RunState::running); running > 0) log_info("{} left to other processes", plural(running, "run"));
    const auto cut_off = total - count(RunState::finished) - count(RunState::failed) - count(RunState::running);
    if (request.stop.load() && count(RunState::finished) < total) {
        log_info("stopped; {} of {} finished\nresume with: {}", count(RunState::finished), plural(total, "run"),
                 shell_line(session.command));
        return request.exit_code();
    }
    if (cut_off > 0) log_info("{} of {} cut off\nresume with: {}", cut_off, plural(total, "run"), shell_line(session.command));
    log_info("results: {}", folder);
    if (count(RunState::failed) + cut_off > 0) return ExitCode::sweep_partial;
    return reported ? ExitCode::ok : ExitCode::run_failed;
}

}  // namespace

void add_sweep(CLI::App& app, Session& session) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* verb =
        app.add_subcommand("sweep", "train all runs of a config's sweep block; run it again to go on where it stopped");
    add_config(*verb, *arguments);
    add_execution(*verb, *arguments);
    verb->add_option("-j,--jobs", arguments->workers,
                     "runs at one time, each in a process of its own; the cores are divided among them")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1024}))
        ->capture_default_str();
    verb->add_flag("--fail-fast", arguments->fail_fast, "start no more runs after the first that fails");
    verb->add_flag("--keep-going", arguments->keep_going, "go on with the others after one that fails (the default)");
    verb->callback([=, &session] { session.action = [=, &session] { return sweep(*arguments, session); }; });
}

}  // namespace palimpsest::cli
