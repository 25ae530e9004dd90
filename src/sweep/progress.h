// What a run shows of itself while it trains: one redrawn line on a terminal, plain lines at an interval elsewhere. The plain lines go
// into the run's log in any case.
#pragma once

#include "core/log.h"
#include "train/trainer.h"

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace palimpsest {

enum class ProgressMode { automatic, always, never };

// "step 1200/20000 | loss 0.6931 | acc 0.512 | gnorm 0.84 | lr 3.0e-04 | 1.9 ms | 34.5k tok/s | eta 0:36"; "?" for what is not known
// yet.
std::string progress_line(const Progress& progress);
// "label [=======>            ]  38% | 7.6k/20k | …", for the bottom of a terminal.
std::string live_line(std::string_view label, const Progress& progress);
// "label 38% acc 0.512 eta 0:36", for several beside each other.
std::string short_line(std::string_view label, const Progress& progress);

class ProgressReporter {
public:
    // `log` may be nullptr; then only the console is told.
    ProgressReporter(std::string label, ProgressMode mode, RunLog* log, std::chrono::milliseconds interval = std::chrono::seconds(5));
    ~ProgressReporter();   // erases the live line
    ProgressReporter(const ProgressReporter&) = delete;
    ProgressReporter& operator=(const ProgressReporter&) = delete;
    void also(std::function<void(const Progress&)> listener) { listener_ = std::move(listener); }
    void report(const Progress& progress);

private:
    std::string label_;
    ProgressMode mode_;
    RunLog* log_;
    std::function<void(const Progress&)> listener_;
    std::chrono::milliseconds interval_;
    std::chrono::steady_clock::time_point last_line_;
};

}  // namespace palimpsest
