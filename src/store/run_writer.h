// The one writer of a run's file. It holds the record in memory and publishes it whole in batches (temporary name, rename), so what
// stands on disk is always a complete, closed file. All HDF5 calls of a process go through this floor, under one mutex.
#pragma once

#include "store/run_record.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

namespace palimpsest {

// Writes <folder>/run.h5. Rows are buffered and published when 256 of them or `flush_seconds` have gathered, but never so often
// that publishing takes more than a twentieth of the time; flush() publishes now. A failed write (full disk) throws, leaves the
// last published file whole and loses no row: the next flush tries again. Not for several threads at once.
class RunWriter {
public:
    // Called before each publication: what it throws is handed on, and nothing is published.
    using MayWrite = std::function<void()>;

    // Throws Error(run_failed) if the file exists ("already running" is told by RunFolder::lock, before).
    static RunWriter create(const std::string& folder, const RunHeader& header, double flush_seconds, MayWrite may_write = {});
    // For resume: cuts off every row with a step beyond `step`, then appends. The status and summary of an earlier end are dropped.
    // Error(run_failed) where its columns and tables are not those that `header` asks for.
    static RunWriter reopen(const std::string& folder, const RunHeader& header, std::int64_t step, double flush_seconds,
                            MayWrite may_write = {});
    RunWriter(const RunWriter&) = delete;
    RunWriter& operator=(const RunWriter&) = delete;
    ~RunWriter();

    const RunRecord& record() const { return record_; }  // what the next publication writes

    void train_row(std::int64_t step, std::span<const float> metrics);
    void eval_row(std::int64_t step, std::span<const std::int64_t> answers /* [S, C] */,
                  std::span<const double> loss_sum /* [S] */);
    // answers of the shallow policies on the same examples, once a run: [policy, S, C]
    void policy_answers(std::span<const std::int64_t> answers);
    void system_row(const SystemRow& row);
    // One row per (re)start, published at once. Its end is told by end_start, or by the next reopen: "lost", with step and time of
    // the last row.
    void begin_start(const RunStart& start);
    void end_start(std::int64_t to_step, const std::string& reason, double seconds);
    double seconds() const;  // of all starts; NaN while one has not ended, and where an older version wrote down none
    // A file beside run.h5; a path named before is named anew. Published with the next flush. A checkpoint needs a flush() before
    // it gets its name: a run resumed from it needs every row up to its step.
    void artifact(const Artifact& artifact);
    void flush();

    // Writes /summary and the status attribute ("finished", "failed", "interrupted": the names of RunState), and publishes.
    // The caller then writes DONE (RunFolder). No call may follow.
    void finish(const std::string& status, const std::map<std::string, double>& summary, const Attributes& summary_attributes);
    bool finished() const { return finished_; }

private:
    RunWriter(const std::string& folder, double flush_seconds, MayWrite may_write);
    RunWriter(const std::string& folder, const RunHeader& header, double flush_seconds, MayWrite may_write);
    RunWriter(const std::string& folder, const RunHeader& header, std::int64_t step, double flush_seconds, MayWrite may_write);
    void change();
    void begin_row(std::int64_t last, std::int64_t step);
    void end_row();
    std::string image() const;
    void publish_all();

    std::string path_;
    RunRecord record_;
    double flush_seconds_;
    MayWrite may_write_;
    bool changed_ = false, finished_ = false;
    std::size_t gathered_ = 0;  // rows since the last publication
    std::chrono::steady_clock::time_point last_publication_ = std::chrono::steady_clock::now();
    double cost_ = 0;  // seconds that the last publication took
};

}  // namespace palimpsest
