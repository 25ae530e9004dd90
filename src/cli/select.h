// The choice of the runs that a verb works on.
#pragma once

#include "store/compare.h"

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace palimpsest::cli {

struct SelectArguments {
    std::vector<std::string> names, where;
    std::string results = "results";
};
void add_select(CLI::App& verb, SelectArguments& arguments);  // SWEEP… --where --results

struct Selection {
    std::vector<CollectedRun> runs;
    std::vector<std::string> swept;  // keys that their sweeps vary
    // The keys in which the runs differ, without the seed. `sweep` comes first where a run is in several named ones.
    std::vector<std::string> keys;
    Copies copies;  // runs that exist more than once
};
// Returns the runs of the names (see cli/find.h). A folder that is reached twice counts once. Names unreadable runs on stderr.
Selection select_runs(const SelectArguments& arguments, RunParts parts);

// Lets a run with copies count once, unless `by` tells sweeps apart (`option` is the verb's option of these keys), and notes it.
void count_once(Selection& selection, const std::vector<std::string>& by, const char* option);

}  // namespace palimpsest::cli
