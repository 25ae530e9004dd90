// How runs are executed, whichever verb asks for it.
#pragma once

#include "sweep/progress.h"

#include <cstdint>
#include <functional>
#include <string>

namespace palimpsest {

struct ExecuteOptions {
    std::string results = "results";
    std::string command;  // as one types it, for the records
    ProgressMode progress = ProgressMode::automatic;
    bool fail_fast = false;
    std::int64_t workers = 1;  // processes that train at one time
    bool inspected = false;    // the runs were found fit to start here (sweep/inspect.h), so they are not looked at again
    std::function<void(const Progress&)> on_progress;           // told at every log point of every lane; may be empty
    std::function<void(const std::string& run_id)> on_taken{};  // told when a run's folder is locked for it; may be empty
};

}  // namespace palimpsest
