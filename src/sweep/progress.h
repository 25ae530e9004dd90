// What a run shows of itself while it trains: one redrawn line on a terminal, plain lines at an interval elsewhere. The plain lines
// go into the run's log in any case.
#pragma once

#include "core/log.h"
#include "train/trainer.h"

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

enum class ProgressMode { automatic, always, never };

// Of its steps, from 0 to 1.
double share_done(const Progress& progress);

// "step 1200/20000 | loss 0.6931 | acc 0.512 | gnorm 0.84 | lr 3.0e-04 | 1.9 ms | 34.5k tok/s | eta 0:36"; "?" for what is not
// known yet.
std::string progress_line(const Progress& progress);
// A run, or a pack of them, that trains now.
struct RunAtWork {
    std::string place, name;  // "[3/8]", "delta-seed=2"
    Progress progress;
};
// The bottom of a terminal: "[3/8] delta-seed=2 [=======>            ]  38% | loss 0.6931 | acc 0.512 | 1.9 ms | 34.5k tok/s | eta
// 0:36"; of several runs "[3/8] 38% acc 0.512 eta 0:36 | [4/8] …". `sweep_left` is the time left for all of a sweep, behind it; ""
// without one. What can be spared gives way where the line is wider than `width` (0: any), the times left come last.
std::string live_line(const std::vector<RunAtWork>& runs, std::string_view sweep_left, std::size_t width);

// How long a sweep still takes, from what its runs have done since it began: as if all of them took equally long.
class SweepClock {
public:
    // `before`: the share of each run that was done when the sweep began.
    explicit SweepClock(std::vector<double> before);
    void at(std::size_t run, double share);  // of 1; shares only grow
    // "12:10"; "?" until a hundredth of a run is done.
    std::string left(double seconds_since_begin) const;

private:
    std::vector<double> done_;
    double before_ = 0;
};

class ProgressReporter {
public:
    // `log` may be nullptr; then only the console is told.
    ProgressReporter(std::string label, ProgressMode mode, RunLog* log,
                     std::chrono::milliseconds interval = std::chrono::seconds(5));
    ~ProgressReporter();  // erases the live line
    ProgressReporter(const ProgressReporter&) = delete;
    ProgressReporter& operator=(const ProgressReporter&) = delete;
    void report(const Progress& progress);

private:
    std::string label_;
    ProgressMode mode_;
    RunLog* log_;
    std::chrono::milliseconds interval_;
    std::chrono::steady_clock::time_point last_line_;
};

}  // namespace palimpsest
