// What stands beside run.h5: config.yaml, run.log, checkpoints/, and the state of the run in side files written last: LOCK (host, pid,
// start, heartbeat), DONE, FAILED.json. `lost` = LOCK whose process is gone (same host) or whose heartbeat is stale.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace palimpsest {

enum class RunState { fresh, running, finished, failed, interrupted, lost };
const char* to_string(RunState state);

struct RunFailure {
    std::string reason;       // non_finite, oom, error, interrupted, requeue
    std::string message;
    std::int64_t step = -1;
};

class RunFolder {
public:
    // A heartbeat older than this is stale. It leaves room for clocks of two hosts that differ by a minute.
    static constexpr std::chrono::seconds stale_after{120};

    explicit RunFolder(std::string path);
    const std::string& path() const { return path_; }
    std::string file(const std::string& name) const;

    // DONE; else a living LOCK: running; else FAILED.json: failed or interrupted; else a dead LOCK, or a run.h5 with no state at all: lost.
    RunState state() const;
    std::optional<RunFailure> failure() const;   // of FAILED.json
    std::string holder() const;                  // "pid 4711 on host a" of LOCK, for messages; "" without one

    // Takes LOCK by exclusive create; a stale one is taken over. Error(usage) "already running (pid, host)" otherwise.
    void lock();
    // Call often: it writes at most once every `interval`. Error(run_failed) when another process has taken the lock over.
    void heartbeat(std::chrono::seconds interval = std::chrono::seconds(5));
    void unlock();                               // removes LOCK if it is ours
    void write_done();                           // and removes FAILED.json
    void write_failed(const RunFailure& failure);
    void clear_failed();

private:
    bool take_over(const std::string& dead, const std::string& mine, std::string& rival);

    std::string path_;
    std::string token_;                          // tells our LOCK from another's; empty when we hold none
    std::chrono::steady_clock::time_point last_heartbeat_{};
};

// <run id>-<human part>: the part for people may be cut, the id never.
std::string run_folder_name(const std::string& run_id, const std::string& human);
// Whether it holds the file of a run, or a file that tells the state of one.
bool is_run_folder(const std::string& folder);
// Those below a folder, that one included, sorted. Symbolic links are followed, and each run counts once, under the name of its real
// place where that is below `root`.
std::vector<std::string> find_run_folders(const std::string& root);

}  // namespace palimpsest
