// Which runs a verb is asked about.
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
    std::vector<std::string> swept;  // keys of their sweeps
    std::vector<std::string>
        keys;       // in which they differ, without the seed; `sweep` first, where a run is in several that were named
    Copies copies;  // runs that are there more than once
};
// The names mean what cli/find.h says. A folder that is reached twice counts once. Says on stderr which runs cannot be read.
Selection select_runs(const SelectArguments& arguments, RunParts parts);

// A run of which there are copies counts once, unless `by` tells sweeps apart (`option` of the verb names these keys); a note says
// so.
void count_once(Selection& selection, const std::vector<std::string>& by, const char* option);

}  // namespace palimpsest::cli
