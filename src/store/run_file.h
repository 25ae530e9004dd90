// One HDF5 file per run (run.h5): created exclusively, one writer. The writer grows the file in memory and publishes it whole in
// batches (temporary name, rename), so what stands on disk is always a complete, closed file; uncompressed while live, compressed
// at the end. Layout and types: docs/results_format.md. Knows no torch. All HDF5 calls of a process go through this floor, under
// one mutex.
#pragma once

#include "core/error.h"
#include "store/attributes.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace palimpsest {

struct Metric {
    std::string name, units, long_name;  // name: lower case letters, digits, underscore
};

// One row of the joint slice table: segment x overwrites x distance bucket.
struct Slice {
    std::int64_t split = 0;    // 0 valid, 1 test
    std::int64_t segment = 0;  // index in that split's list
    std::int64_t overwrites = 0;
    std::int64_t distance_from = 0, distance_to = 0;  // inclusive
    std::string label;
};

struct RunHeader {
    std::string run_id, sweep_id, title;
    std::string resolved_yaml, source_yaml;
    std::vector<std::string> overrides;
    Attributes config;      // flattened keys of the resolved config, native types
    Attributes provenance;  // of the first start: commit, dirty, command, versions, hardware, seeds, determinism flags
    std::string git_diff;
    std::vector<Metric> train_metrics;  // f4 columns over /train/step
    std::vector<Slice> slices;
    std::vector<std::string> answer_classes;
    std::vector<std::string> policies;
};

// One start or resumption of a run.
struct RunStart {
    std::string host = {}, device = {};
    std::int64_t from_step = 0;
    Attributes provenance = {};  // as in the header, of what goes on with the run now
    std::string git_diff = {};   // not read back
    // Written by the writer itself.
    std::string started = {}, ended = {}, reason = {};
    std::int64_t to_step = -1;
    double seconds = std::numeric_limits<double>::quiet_NaN();
};

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
    RunWriter(RunWriter&&) noexcept;
    RunWriter& operator=(RunWriter&&) noexcept;
    ~RunWriter();

    void train_row(std::int64_t step, std::span<const float> metrics);
    void eval_row(std::int64_t step, std::span<const std::int64_t> answers /* [S, C] */,
                  std::span<const double> loss_sum /* [S] */);
    // answers of the shallow policies on the same examples, once a run: [policy, S, C]
    void policy_answers(std::span<const std::int64_t> answers);
    void system_row(std::int64_t step, double seconds, double tokens_per_second, std::int64_t gpu_bytes_peak);
    // One row per (re)start. Its end is told by end_start, or by the next reopen: "lost", with step and time of the last row.
    void begin_start(const RunStart& start);
    void end_start(std::int64_t to_step, const std::string& reason, double seconds);
    double seconds() const;  // of all starts that have ended; NaN where an older version wrote down none
    // A file beside run.h5; a path named before is named anew. Published with the next flush. A checkpoint needs a flush() before
    // it gets its name: a run resumed from it needs every row up to its step.
    void artifact(const std::string& path, std::int64_t bytes, const std::string& sha256);
    void flush();

    // Writes /summary and the status attribute ("finished", "failed", "interrupted": the states of run_folder.h), compresses,
    // publishes. The caller then writes DONE (RunFolder). No call may follow.
    void finish(const std::string& status,
                const std::vector<std::tuple<std::string, double, std::string>>& summary /* name, value, unit */,
                const Attributes& summary_attributes);

private:
    struct Impl;
    static std::unique_ptr<Impl> begin(const std::string& folder, double flush_seconds, MayWrite may_write);
    explicit RunWriter(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// What is read of a run's file beside its head, its config and its summary.
struct RunParts {
    bool log = true;      // step, train, tokens_per_second
    bool slices = true;   // with the names of the classes and policies
    bool answers = true;  // eval_step, answers, loss_sum, policy_answers
    bool origin = true;   // resolved_yaml, provenance, starts
};
inline constexpr RunParts results_only = {false, false, false, false}, results_and_questions = {false, true, false, false};

// What stands in the file is no record of a run, or no longer one.
class DamagedRun : public Error {
public:
    explicit DamagedRun(const std::string& message) : Error(ExitCode::run_failed, message) {}
};

// Everything `show`, `compare` and sweep collection need, read in one short read-only open, never held, never locked.
struct RunRecord {
    std::string run_id, sweep_id, title, status, format_version;
    std::string resolved_yaml;
    Attributes config, provenance;
    std::vector<std::int64_t> step;
    std::map<std::string, std::vector<float>> train;  // by metric
    std::vector<std::int64_t> eval_step;
    std::vector<Slice> slices;
    std::vector<std::string> answer_classes, policy_names;
    std::vector<std::int64_t> answers;         // [E, S, C]
    std::vector<double> loss_sum;              // [E, S]
    std::vector<std::int64_t> policy_answers;  // [P, S, C], empty when not measured
    std::map<std::string, double> summary;
    Attributes summary_attributes;
    std::vector<double> tokens_per_second;
    std::vector<RunStart> starts;
};
std::string run_id_in(const std::string& folder);  // which run's file a folder holds; "" where it holds none that can be read
// DamagedRun, or Error(run_failed) "written by format 2.0; this tool reads 1.x", with the path. What is in none of the `parts`
// stays empty.
RunRecord read_run(const std::string& file, RunParts parts = {});

std::string hdf5_version();  // of the library that runs, and of the header when it differs: "1.10.8"

// Accuracy = correct / all over the slices of one split (0 valid, 1 test) at evaluation row e; NaN when there are no answers.
double accuracy(const RunRecord& record, std::size_t row, std::int64_t split);
double class_rate(const RunRecord& record, std::size_t row, std::int64_t split, std::size_t answer_class);

}  // namespace palimpsest
