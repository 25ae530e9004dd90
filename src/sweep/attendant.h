// A thread beside the training thread: it keeps the heartbeats of the locks going, and when a second signal will not wait for the step
// to end, it closes the runs and leaves the process.
#pragma once

#include "store/run_folder.h"
#include "sweep/stop.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace palimpsest {

class Attendant {
public:
    // `folders` are locked. While the attendant lives nobody else uses them. `close`: called before the process is left.
    Attendant(std::vector<RunFolder*> folders, const StopRequest& request, std::function<void()> close);
    ~Attendant();
    Attendant(const Attendant&) = delete;
    Attendant& operator=(const Attendant&) = delete;

    // Why the runs must not go on ("the lock was taken over by …"); "" while all is well.
    std::string problem() const;

private:
    void work();
    [[noreturn]] void leave();

    std::vector<RunFolder*> folders_;
    const StopRequest& request_;
    std::function<void()> close_;
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    bool done_ = false;
    std::string problem_;
    std::thread thread_;
};

}  // namespace palimpsest
