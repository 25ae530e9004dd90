// A thread beside the training thread: it keeps the heartbeats of the locks going, and when a second signal will not wait for the
// step to end, it closes the runs and leaves the process.
#pragma once

#include "sweep/session.h"
#include "sweep/stop.h"

#include <chrono>
#include <functional>
#include <stop_token>
#include <thread>
#include <vector>

namespace palimpsest {

// A process that is told to leave at once takes no longer to close its runs, however many they are.
inline constexpr std::chrono::seconds time_to_close{5};

class Attendant {
public:
    // The sessions hold their locks and outlive the attendant, which lives until each has written its end.
    Attendant(std::vector<RunSession*> sessions, const StopRequest& request);
    Attendant(const Attendant&) = delete;

private:
    void work(const std::stop_token& done);
    [[noreturn]] void leave();

    const std::vector<RunSession*> sessions_;
    const StopRequest& request_;
    std::jthread thread_;
};

// Calls all at the same time, each on a thread of its own, and returns when they are done, at the latest at `deadline`: threads
// that are at work then go on by themselves. An exception becomes a line of the log.
void call_all(std::vector<std::function<void()>> calls, std::chrono::steady_clock::time_point deadline);

}  // namespace palimpsest
