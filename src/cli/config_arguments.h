// What the verbs that start from a config share.
#pragma once

#include "cli/app.h"
#include "config/spec.h"
#include "sweep/options.h"
#include "sweep/plan.h"
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
ProgressMode progress_mode(const std::string& word);  // also sets the terminal up for this mode

bool wants_telling(const ConfigArguments& arguments);  // --print-config, --explain, --dry-run
// Logs the notes, and prints what --print-config, --explain or --dry-run ask for. Returns whether one of them was given.
bool only_tells(const ConfigArguments& arguments, const Experiment& experiment);

// Returns the exit code for one run's outcome, and tells a person about the outcome on stderr.
ExitCode tell_outcome(const RunOutcome& outcome, const StopRequest& request);

}  // namespace palimpsest::cli
