// How a run is asked to stop: by a signal, or by a test.
#pragma once

#include "core/error.h"

#include <atomic>

namespace palimpsest {

// Lock-free, so that a signal handler may write it.
struct StopRequest {
    std::atomic<bool> stop{false};   // finish the step, write a checkpoint
    std::atomic<bool> now{false};    // close the files and leave
    std::atomic<int> signal{0};      // the first that came

    // What the program returns after it: SIGTERM and SIGUSR2 mean that somebody else needs the machine and will start us again.
    ExitCode exit_code() const;
    const char* reason() const;      // of a run's end, as RunFailure has it: "interrupted" or "requeue"
};

// From here on SIGINT, SIGTERM and SIGUSR2 ask `request` to stop, a second one to leave at once. SIGUSR1 is left to NCCL.
void handle_signals(StopRequest& request);

}  // namespace palimpsest
