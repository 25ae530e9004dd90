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
    std::vector<CollectedRun> runs;   // of several sweeps with a key `sweep`
    std::vector<std::string> keys;    // in which they differ, without the seed; `sweep` first, where a run is in several of them
    std::vector<std::string> repeated;  // ids of runs that are in several sweeps
};
// A name is the folder of a sweep or of a run, a sweep's name below the results, or the beginning of a run's id. Says on stderr which
// runs cannot be read.
Selection select_runs(const SelectArguments& arguments);

// A run that is in several sweeps counts once, unless the sweeps are told apart; a note says so.
void count_once(Selection& selection, const std::vector<std::string>& by);

}  // namespace palimpsest::cli
