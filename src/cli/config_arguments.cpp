#include "cli/config_arguments.h"

#include "cli/output.h"
#include "cli/path_option.h"
#include "core/log.h"
#include "core/text.h"
#include "store/run_folder.h"
#include "sweep/inspect.h"
#include "sweep/plan.h"

#include <CLI/CLI.hpp>

#include <algorithm>

namespace palimpsest::cli {
namespace {

void print_plan(const ConfigArguments& arguments, const Experiment& experiment) {
    const InspectOptions inspection{experiment.lanes, planned_folders(arguments.results, experiment)};
    const std::vector<RunSize> sizes = inspect_runs(experiment.runs, inspection);
    std::size_t listed = 0;
    std::vector<std::string> header = {"id"};
    const std::vector<std::string> varied = swept_keys(experiment.runs);
    header.insert(header.end(), varied.begin(), varied.end());
    for (const char* column : {"steps", "parameters", "state", "action"}) header.push_back(column);
    Table table(header);
    for (std::size_t i = 0; i < experiment.runs.size(); ++i) {
        if (!arguments.only.empty() && i != experiment.chosen) continue;
        const PlannedRun& run = experiment.runs[i];
        const Decision decision = decide(RunFolder(inspection.folders[i]));
        std::vector<std::string> row = {short_id(run.spec.id)};
        for (const std::string& key : varied) {
            const auto entry = std::find_if(run.varied.begin(), run.varied.end(), [&](const auto& e) { return e.first == key; });
            row.push_back(entry == run.varied.end() ? "-" : entry->second);
        }
        row.push_back(std::to_string(sizes[i].steps));
        row.push_back(std::to_string(sizes[i].parameters));
        row.push_back(fmt::format("{} at length {}", format_bytes(sizes[i].state_bytes), sizes[i].state_length));
        row.push_back(std::string(decision.action()) + (decision.reason.empty() ? "" : " (" + decision.reason + ")"));
        table.add(std::move(row));
        ++listed;
    }
    print(table.str());
    log_info("{} in '{}'; nothing was created", plural(static_cast<std::int64_t>(listed), "run"),
             sweep_folder(arguments.results, experiment.name));
}

}  // namespace

void add_config(CLI::App& verb, ConfigArguments& arguments) {
    verb.add_option("CONFIG", arguments.path, "YAML file; its bases are looked for beside it and in configs/")->required();
    verb.add_option("OVERRIDES", arguments.overrides, "key=value, such as train.lr=3e-4 or model.mixer=delta; the later one wins");
}

void add_progress(CLI::App& verb, std::string& progress) {
    verb.add_option("--progress", progress, "auto: one live line on a terminal, plain lines elsewhere; always; never")
        ->check(CLI::IsMember({"auto", "always", "never"}))
        ->capture_default_str();
}

void add_execution(CLI::App& verb, ConfigArguments& arguments) {
    add_path(verb, "--results", arguments.results, "folder of all results");
    add_progress(verb, arguments.progress);
    verb.add_flag("--print-config", arguments.print_config, "print the resolved config, every key that counts, and stop");
    verb.add_flag("--explain", arguments.explain,
                  "like --print-config, with each value's origin: default, file and line, or argument");
    verb.add_flag("--dry-run", arguments.dry_run, "list the runs with parameters and state bytes, and stop; creates nothing");
}

ProgressMode progress_mode(const std::string& word) {
    if (word == "never") return ProgressMode::never;
    if (word == "auto") return ProgressMode::automatic;
    Terminal terminal = stderr_terminal();
    terminal.live = true;
    start_log(LogLevel::info, terminal);
    return ProgressMode::always;
}

bool wants_telling(const ConfigArguments& arguments) { return arguments.explain || arguments.print_config || arguments.dry_run; }

bool only_tells(const ConfigArguments& arguments, const Experiment& experiment) {
    for (const std::string& note : experiment.notes) log_info("note: {}", note);
    if (arguments.explain || arguments.print_config) {
        print(arguments.explain ? experiment.explain : emit_yaml(experiment.runs[experiment.chosen].spec.resolved));
        if (experiment.runs.size() > 1 && arguments.only.empty())
            log_info("this is the first of {} runs; --dry-run lists them", experiment.runs.size());
    }
    if (arguments.dry_run) print_plan(arguments, experiment);
    return wants_telling(arguments);
}

ExitCode tell_outcome(const RunOutcome& outcome, const StopRequest& request) {
    switch (outcome.state) {
        case RunState::finished:
            if (outcome.skipped) log_info("finished before: {}", outcome.folder);
            print(
                fmt::format("run             {}\nfolder          {}\ntest accuracy   {:.4f}\nvalid accuracy  {:.4f}\nbest policy   "
                            "  {}\ntime            {}\n",
                            outcome.run_id, outcome.folder, outcome.test_accuracy, outcome.valid_accuracy,
                            value_text(outcome.best_policy), format_duration(outcome.seconds)));
            return ExitCode::ok;
        case RunState::running:
            log_error("the run is already {}; it is left alone: {}", outcome.message, outcome.folder);
            return ExitCode::usage;
        case RunState::interrupted:
            log_info("{}\nresume with: {}", outcome.message, resume_command(outcome.folder));
            return request.exit_code();
        default:
            if (const auto failure = RunFolder(outcome.folder).failure(); failure && failure->reason == "non_finite")
                log_info(
                    "failed; log: {}/run.log\nthe same run fails again: give it another train.lr, train.clip or train.non_finite",
                    outcome.folder);
            else log_info("failed; log: {}/run.log\ntry again with: {}", outcome.folder, resume_command(outcome.folder));
            return ExitCode::run_failed;
    }
}

}  // namespace palimpsest::cli
