// What stands beside run.h5: config.yaml, run.log, checkpoints/, and the state of the run in side files written last: LOCK
// (run_lock.h), DONE, FAILED.json.
#pragma once

#include "store/run_reader.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace palimpsest {

struct RunFailure {
    std::string reason;  // non_finite, oom, error, interrupted, requeue
    std::string message;
    std::int64_t step = -1;
    bool operator==(const RunFailure&) const = default;
};

class RunFolder {
public:
    explicit RunFolder(std::string path);
    const std::string& path() const { return path_; }
    std::string file(const std::string& name) const;

    // DONE beside a good run.h5: finished; else a living LOCK: running; else FAILED.json: failed or interrupted. Lost is what is
    // left of a run otherwise: DONE, a dead LOCK or a run.h5.
    RunState state() const;
    // Why run.h5 is not the record that DONE or the checkpoints beside it speak of: it is missing, damaged, or not finished under
    // DONE.
    // "" where all is well, and where it cannot be read for another reason (rights, a newer format): nothing is lost then.
    std::string lost_record(RunParts looked_at = results_only) const;
    std::optional<RunFailure> failure() const;  // of FAILED.json
    std::string holder() const;                 // "pid 4711 on host a" of LOCK, for messages; "" without one

    void write_done();  // and removes FAILED.json
    void write_failed(const RunFailure& failure);
    void clear_end();  // removes DONE and FAILED.json

private:
    std::string path_;
};

// <run id>-<human part>: the part for people may be cut, the id never.
std::string run_folder_name(const std::string& run_id, const std::string& human);
// Whether it holds the file of a run, or a file that tells the state of one.
bool is_run_folder(const std::string& folder);
// Those below a folder, that one included, sorted. Symbolic links are followed, and each run counts once, under the name of its
// real place where that is below `root`.
std::vector<std::string> find_run_folders(const std::string& root);

}  // namespace palimpsest
