// palimpsest run CONFIG: trains one run.
#include "cli/config_arguments.h"
#include "cli/output.h"
#include "core/text.h"
#include "sweep/execute_pack.h"
#include "sweep/inspect.h"
#include "sweep/plan.h"

#include <CLI/CLI.hpp>

#include <memory>

namespace palimpsest::cli {
namespace {

ExitCode run(const ConfigArguments& arguments, const Session& session) {
    if (!wants_telling(arguments)) wait_without_spinning(session.command);  // comes first, because it starts the program anew
    const Experiment experiment = load_config(arguments.path, arguments.overrides, arguments.only);
    if (experiment.is_sweep && arguments.only.empty() && !wants_telling(arguments))
        fail(ExitCode::usage, "'{}' plans a sweep of {} runs; start it with: {}\nor one of them: {} --only NUMBER", arguments.path,
             experiment.runs.size(), shell_line({"palimpsest", "sweep", arguments.path}),
             shell_line({"palimpsest", "run", arguments.path}));
    if (only_tells(arguments, experiment)) return ExitCode::ok;
    static StopRequest request;  // static, because signal handlers write it to the very end
    handle_signals(request);
    ExecuteOptions options;
    options.results = arguments.results;
    options.command = shell_line(session.command);
    options.progress = progress_mode(arguments.progress);
    const PlannedRun& planned = experiment.runs[experiment.chosen];
    const std::string folder = planned_folders(options.results, experiment)[experiment.chosen];
    const std::string sweep = experiment.is_sweep ? sweep_id(experiment) : "";  // the record of the run names its sweep
    static_cast<void>(inspect_runs({planned}, {experiment.lanes, {folder}}));
    options.inspected = true;
    return tell_outcome(execute_pack(experiment, {{&planned, folder}}, sweep, human_name(planned), options, request).front(),
                        request);
}

}  // namespace

void add_run(CLI::App& app, Session& session) {
    auto arguments = std::make_shared<ConfigArguments>();
    CLI::App* verb = app.add_subcommand("run", "train one run (resumes it when it was cut off)");
    add_config(*verb, *arguments);
    add_execution(*verb, *arguments);
    verb->add_option("--only", arguments->only,
                     "one run of the config's sweep: its number in the plan, or six digits of its id at least");
    verb->callback([arguments, &session] { session.action = [arguments, &session] { return run(*arguments, session); }; });
}

}  // namespace palimpsest::cli
