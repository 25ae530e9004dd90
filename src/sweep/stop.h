// How a run is asked to stop: by a signal, or by a test.
#pragma once

#include "core/error.h"

#include <atomic>
#include <csignal>
#include <sys/types.h>

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

// From here on SIGINT, SIGTERM and SIGUSR2 ask `request` to stop, a second one to leave at once. SIGUSR1 is left to NCCL. A file that
// grows beyond the limit of the user (ulimit -f) becomes an error of that write instead of a signal.
void handle_signals(StopRequest& request);

// For workers. A terminal or a scheduler may signal them beside their parent, which passes the signal on too: so the same signals ask
// to stop, however often they come, and `leave_at_once` alone to leave. When the parent dies, SIGTERM comes from the kernel; a parent
// that is gone already has asked to stop. Pipes that nobody reads any more are an error of that write.
inline constexpr int leave_at_once = SIGQUIT;
void handle_signals_of_worker(StopRequest& request, pid_t parent /* 0: none */);

}  // namespace palimpsest
