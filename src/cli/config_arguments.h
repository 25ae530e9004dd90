// What the verbs that start from a config have in common.
#pragma once

#include "cli/app.h"
#include "config/spec.h"
#include "sweep/options.h"
#include "sweep/outcome.h"
#include "sweep/stop.h"

#include <string>
#include <vector>

namespace palimpsest::cli {

struct ConfigArguments {
    std::string path, results = "results", progress = "auto", only;
    std::vector<std::string> overrides;
    bool print_config = false, explain = false, dry_run = false;
};

void add_config(CLI::App& verb, ConfigArguments& arguments);     // CONFIG [key=value …]
void add_execution(CLI::App& verb, ConfigArguments& arguments);  // --results, --progress, --print-config, --explain, --dry-run
void add_progress(CLI::App& verb, std::string& progress);
ProgressMode progress_mode(const std::string& word);  // also sets the terminal up for it

bool wants_telling(const ConfigArguments& arguments);  // --print-config, --explain, --dry-run
// True when the arguments only ask to be told something, which is then on stdout.
bool only_tells(const ConfigArguments& arguments, const Experiment& experiment);

// The code that one run's end gives, and what a person should know of it on stderr.
ExitCode tell_outcome(const RunOutcome& outcome, const StopRequest& request);

}  // namespace palimpsest::cli
