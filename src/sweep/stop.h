// How a run is asked to stop: by a signal, or by a test.
#pragma once

#include "core/error.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <sys/types.h>

namespace palimpsest {

// Lock-free, so that a signal handler may write it.
struct StopRequest {
    std::atomic<bool> stop{false};  // finish the step, write a checkpoint
    std::atomic<bool> now{false};   // close the files and leave
    std::atomic<int> signal{0};     // the first that came

    // What the program returns after it: SIGINT and SIGHUP come from a person, or with a terminal that was closed; the others mean
    // that somebody else needs the machine and will start us again.
    ExitCode exit_code() const;
    const char* reason() const;  // of a run's end, as RunFailure has it: "interrupted" or "requeue"
};

// Puts right what the process that started this one may have left behind: ignored deaths of children, with which no child can be
// waited for, and blocked signals. The program calls it first of all.
void reset_inherited_signals();

// From here on SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU ask `request` to stop; SIGINT or SIGTERM after any of them
// asks it to leave at once (the others may be sent twice by a system that means one stop). A SIGHUP that was ignored before (nohup)
// stays ignored. A file that grows beyond the limit of the user (ulimit -f), and a pipe that nobody reads any more (| tee, ended by
// Ctrl-C), become an error of that write instead of a signal.
//
// A thread of its own watches the request from here on. It exists before any thread that computes, so that no number of them can
// keep the process: while nothing needs closing the first signal ends it; otherwise whoever has something to close ends it, and a
// request to leave at once is carried out after `longest_closing` whatever holds them up.
void handle_signals(StopRequest& request);
inline constexpr std::chrono::seconds longest_closing{10};

// While one lives there is something to close before the process may leave: a run, or a sweep.
class NeedsClosing {
public:
    NeedsClosing();
    ~NeedsClosing();
    NeedsClosing(const NeedsClosing&) = delete;
    NeedsClosing& operator=(const NeedsClosing&) = delete;
};

// For workers. A terminal or a scheduler may signal them beside their parent, which passes the signal on too: so the same signals
// ask to stop, however often they come, and `leave_at_once` alone to leave. When the parent dies, SIGTERM comes from the kernel; a
// parent that is gone already has asked to stop.
inline constexpr int leave_at_once = SIGQUIT;
void handle_signals_of_worker(StopRequest& request, pid_t parent /* 0: none */);

}  // namespace palimpsest
