// palimpsest check CONFIG: tells whether a config is right. It expands, compiles tasks and builds models, but starts nothing.
#include "cli/config_arguments.h"
#include "cli/output.h"
#include "core/log.h"
#include "core/text.h"
#include "sweep/inspect.h"

#include <CLI/CLI.hpp>

#include <memory>

namespace palimpsest::cli {

void add_check(CLI::App& app, Session& session) {
    auto arguments = std::make_shared<ConfigArguments>();
    CLI::App* verb = app.add_subcommand("check", "report every error of a config; starts nothing");
    add_config(*verb, *arguments);
    verb->callback([arguments, &session] {
        session.action = [arguments] {
            const Experiment experiment = load_config(arguments->path, arguments->overrides);
            static_cast<void>(inspect_runs(experiment.runs, {experiment.lanes, {}}));
            for (const std::string& note : experiment.notes) log_info("note: {}", note);
            log_info("{}: {}, no errors", arguments->path, plural(static_cast<std::int64_t>(experiment.runs.size()), "run"));
            return ExitCode::ok;
        };
    });
}

}  // namespace palimpsest::cli
