// Reads the file of a run: one short read of the whole file, which is never held open and never locked.
#pragma once

#include "core/error.h"
#include "store/run_record.h"

#include <cstdint>
#include <string>

namespace palimpsest {

// What is read of a run's file beside its head, its config and its summary.
struct RunParts {
    bool log = true;      // step, train, tokens_per_second
    bool slices = true;   // with the names of the classes and policies
    bool answers = true;  // eval_step, answers, loss_sum, policy_answers
    bool origin = true;   // resolved_yaml, provenance, starts
};
inline constexpr RunParts results_only = {false, false, false, false}, results_and_questions = {false, true, false, false};

// What stands in the file is no record of a run, or no longer one.
class DamagedRun : public Error {
public:
    explicit DamagedRun(const std::string& message) : Error(ExitCode::run_failed, message) {}
};

std::string run_id_in(const std::string& folder);  // which run's file a folder holds; "" where it holds none that can be read
// DamagedRun, or Error(run_failed) "written by format 2.0; this tool reads 1.x", with the path. What is in none of the `parts`
// stays empty.
RunRecord read_run(const std::string& file, RunParts parts = {});

std::string hdf5_version();  // of the library that runs, and of the header when it differs: "1.10.8"

double summary_value(const RunRecord& record, const std::string& name);  // NaN where it has none

}  // namespace palimpsest
