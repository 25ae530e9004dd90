// From planned runs to folders, and what is to be done with each.
#pragma once

#include "config/spec.h"
#include "store/run_folder.h"
#include "store/sweep_file.h"

#include <string>
#include <utility>
#include <vector>

namespace palimpsest {

// The part of a folder's name for people: the swept values ("mqar-delta-lr=0.001"), or task and mixers where nothing is swept.
std::string human_name(const PlannedRun& run);
// <results>/<experiment>/<short id>-<human part>
std::string sweep_folder(const std::string& results, const std::string& experiment);
std::string run_folder(const std::string& results, const std::string& experiment, const PlannedRun& run);
// "task=mqar model.mixer=delta seed=2"
std::string varied_text(const std::vector<std::pair<std::string, std::string>>& varied);
std::string short_id(const std::string& run_id);

// The same for the same runs, in whatever order.
std::string sweep_id(const Experiment& experiment);

enum class Action { start, resume, skip, leave };
struct Decision {
    Action action = Action::start;
    std::string reason;   // "finished", "running: pid 4711 on host a", "interrupted at step 400", "failed at step 40: …", ""
};
Decision decide(const RunFolder& folder);
const char* to_string(Action action);  // "start", "resume", "skip", "leave alone"

// The frozen plan of a sweep, manifest.yaml in its folder: made once, before the first run starts, and complete in itself, so that
// workers read it instead of the config. `only`: the numbers of the runs that stand in it; empty: all.
std::string manifest_yaml(const Experiment& experiment, const std::string& results, const std::vector<std::string>& command,
                          const std::vector<std::size_t>& only = {});
// Writes it. Where one stands that plans other runs, they are named in the returned notes; their folders stay.
std::vector<std::string> freeze_manifest(const std::string& folder, const std::string& yaml);

struct Manifest {
    std::string name, sweep_id, command, yaml;
    std::vector<SweepRun> runs;         // folders as paths from here
    std::vector<std::string> varied;    // swept keys, in the order of the grid
};
// Error(usage) when `folder` has none, or one that cannot be understood.
Manifest read_manifest(const std::string& folder);
Manifest parse_manifest(const std::string& path, const std::string& yaml, const std::string& folder);
bool has_manifest(const std::string& folder);

// The runs of these ids as the manifest plans them. Error(usage) where one is not planned there, or where its config is no longer the
// run of its id: somebody edited the manifest, or another version of the program wrote it.
Experiment planned_experiment(const std::string& path, const std::string& yaml, const std::vector<std::string>& run_ids, const Catalog& catalog);

}  // namespace palimpsest
