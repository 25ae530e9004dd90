// The runs of a sweep as their files tell them.
#pragma once

#include "core/text.h"
#include "store/run_reader.h"

#include <string>
#include <utility>
#include <vector>

namespace palimpsest {

struct SweepRun {
    std::string run_id, folder;
    std::vector<std::pair<std::string, std::string>> varied;  // swept keys and values, in expansion order
    std::string config = {};                                  // resolved YAML, as the plan has it; "" where there is none
};

// The keys that are swept, in the order of the grid; a run does not list keys that it does not use.
template <class Run>
std::vector<std::string> swept_keys(const std::vector<Run>& runs) {
    std::vector<std::string> keys;
    for (const Run& run : runs)
        for (const auto& [key, value] : run.varied)
            if (!contains(keys, key)) keys.push_back(key);
    return keys;
}

struct CollectedRun {
    SweepRun run;
    RunState state = RunState::fresh;
    bool present = false;  // its run.h5 was found and readable
    std::string problem;   // why not
    std::string sweep;     // where it was found, as the user tells sweeps apart; "" where nobody asked
    RunRecord record;      // when present; else its config alone, of the plan or of config.yaml beside the missing file
};

// Reads every run's file; a missing or damaged one is reported in its row, never fatal.
std::vector<CollectedRun> collect(const std::vector<SweepRun>& runs, RunParts parts = {});

}  // namespace palimpsest
