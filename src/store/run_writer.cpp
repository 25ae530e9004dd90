#include "store/run_writer.h"

#include "core/error.h"
#include "core/file.h"
#include "core/time.h"
#include "store/hdf5.h"
#include "store/run_layout.h"
#include "store/run_reader.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>

namespace palimpsest {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t batch_rows = 256;
constexpr double most_time = 1.0 / 20;  // share of the run's time that publishing may take

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string run_file_of(const std::string& folder) { return folder + "/run.h5"; }

// A killed writer leaves its temporary file behind; the next writer of the same run removes it.
void remove_leftovers(const std::string& folder) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        if (name.rfind("run.h5.tmp", 0) == 0) std::filesystem::remove(entry->path(), error);
    }
}

}  // namespace

struct RunWriter::Impl {
    std::string path;
    double flush_seconds = 2;
    MayWrite may_write;
    RunRecord record;  // what the next publication writes
    bool reopened = false;

    std::size_t gathered = 0;  // rows since the last publication
    bool changed = false, finished = false;
    Clock::time_point last_publication = Clock::now();
    double cost = 0;

    std::string image(const Summary& summary = {}) const {
        try {
            return run_image(record, summary);
        } catch (const hdf5::Failure& failure) {
            fail(ExitCode::run_failed, "cannot write '{}': {}", path, failure.what());
        }
    }

    void write(const Summary& summary = {}) {
        const std::string bytes = image(summary);
        if (may_write) may_write();
        publish(bytes, path);
        changed = false;
        gathered = 0;
    }

    void flush() {
        if (!changed) return;
        const Clock::time_point start = Clock::now();
        write();
        last_publication = Clock::now();
        cost = seconds_since(start);
    }

    void begin_row(std::vector<std::int64_t>& steps, std::int64_t step) {
        PALIMPSEST_ASSERT(!finished, "a row after finish() of {}", path);
        PALIMPSEST_ASSERT(steps.empty() || step > steps.back(), "{}: steps must increase, got {} after {}", path, step,
                          steps.back());
        steps.push_back(step);
        ++gathered;
        changed = true;
    }

    void end_row() {
        const double waited = seconds_since(last_publication);
        if ((gathered >= batch_rows || waited >= flush_seconds) && waited * most_time >= cost) flush();
    }

    // A start that was killed could not say so itself.
    void end_lost_starts() {
        for (RunStart& start : record.starts) {
            if (!start.reason.empty()) continue;
            start.to_step = record.step.empty() ? start.from_step : std::max(start.from_step, record.step.back());
            start.reason = "lost";
            start.seconds = !record.time_step.empty() && record.time_step.back() > start.from_step ? record.seconds.back() : 0.0;
        }
    }

    void cut_rows(std::int64_t step) {
        const auto cut = [&](std::vector<std::int64_t>& steps) {
            steps.erase(std::upper_bound(steps.begin(), steps.end(), step), steps.end());
            return steps.size();
        };
        const std::size_t rows = cut(record.step), evaluations = cut(record.eval_step), measurements = cut(record.time_step);
        for (auto& [name, column] : record.train) column.resize(rows);
        record.loss_sum.resize(evaluations * record.slices.size());
        record.answers.resize(record.loss_sum.size() * record.answer_classes.size());
        record.seconds.resize(measurements);
        record.tokens_per_second.resize(measurements);
        record.gpu_bytes_peak.resize(measurements);
    }

    // The status and the summary belong to the end of a run: one that goes on has neither.
    void remove_end() {
        record.status = record.finished = "";
        record.summary.clear();
        record.summary_attributes.clear();
    }
};

RunWriter::RunWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RunWriter::RunWriter(RunWriter&&) noexcept = default;
RunWriter& RunWriter::operator=(RunWriter&&) noexcept = default;

RunWriter::~RunWriter() {
    if (!impl_ || impl_->finished) return;
    try {
        impl_->flush();
    } catch (const std::exception&) {
        // Somebody who needs to know calls flush(); a destructor can only try.
    }
}

std::unique_ptr<RunWriter::Impl> RunWriter::begin(const std::string& folder, double flush_seconds, MayWrite may_write) {
    auto impl = std::make_unique<Impl>();
    impl->path = run_file_of(folder);
    impl->flush_seconds = flush_seconds;
    impl->may_write = std::move(may_write);
    if (impl->may_write) impl->may_write();
    remove_leftovers(folder);
    return impl;
}

RunWriter RunWriter::create(const std::string& folder, const RunHeader& header, double flush_seconds, MayWrite may_write) {
    std::unique_ptr<Impl> impl = begin(folder, flush_seconds, std::move(may_write));
    static_cast<RunHeader&>(impl->record) = header;
    impl->record.created = now_utc();
    for (const Metric& metric : header.train_metrics) {
        check_metric_name(metric.name);
        impl->record.train[metric.name];
    }
    if (!create_file(impl->path, impl->image()))
        fail(ExitCode::run_failed, "'{}' exists already; a run's file is never overwritten", impl->path);
    return RunWriter(std::move(impl));
}

RunWriter RunWriter::reopen(const std::string& folder, const RunHeader& header, std::int64_t step, double flush_seconds,
                            MayWrite may_write) {
    std::unique_ptr<Impl> impl = begin(folder, flush_seconds, std::move(may_write));
    impl->reopened = impl->changed = true;
    impl->record = read_run(impl->path);  // refuses a damaged or foreign file in the reader's words
    check_layout(header, impl->record, impl->path);
    impl->end_lost_starts();
    impl->cut_rows(step);
    impl->remove_end();
    impl->flush();
    return RunWriter(std::move(impl));
}

void RunWriter::train_row(std::int64_t step, std::span<const float> metrics) {
    RunRecord& r = impl_->record;
    PALIMPSEST_ASSERT(metrics.size() == r.train_metrics.size(), "{} metrics, {} columns", metrics.size(), r.train_metrics.size());
    impl_->begin_row(r.step, step);
    for (std::size_t i = 0; i < metrics.size(); ++i) r.train.at(r.train_metrics[i].name).push_back(metrics[i]);
    impl_->end_row();
}

void RunWriter::eval_row(std::int64_t step, std::span<const std::int64_t> answers, std::span<const double> loss_sum) {
    RunRecord& r = impl_->record;
    const std::size_t slices = r.slices.size(), classes = r.answer_classes.size();
    PALIMPSEST_ASSERT(slices > 0 && answers.size() == slices * classes && loss_sum.size() == slices,
                      "{} answers, {} losses, {} slices, {} classes", answers.size(), loss_sum.size(), slices, classes);
    impl_->begin_row(r.eval_step, step);
    r.answers.insert(r.answers.end(), answers.begin(), answers.end());
    r.loss_sum.insert(r.loss_sum.end(), loss_sum.begin(), loss_sum.end());
    impl_->end_row();
}

void RunWriter::policy_answers(std::span<const std::int64_t> answers) {
    RunRecord& r = impl_->record;
    if (r.policies.empty()) return;  // a file of an older version, which began without them
    PALIMPSEST_ASSERT(answers.size() == r.policies.size() * r.slices.size() * r.answer_classes.size(),
                      "{} answers, {} policies, {} slices, {} classes", answers.size(), r.policies.size(), r.slices.size(),
                      r.answer_classes.size());
    r.policy_answers.assign(answers.begin(), answers.end());
    impl_->changed = true;
}

void RunWriter::system_row(std::int64_t step, double seconds, double tokens_per_second, std::int64_t gpu_bytes_peak) {
    RunRecord& r = impl_->record;
    impl_->begin_row(r.time_step, step);
    r.seconds.push_back(seconds);
    r.tokens_per_second.push_back(tokens_per_second);
    r.gpu_bytes_peak.push_back(gpu_bytes_peak);
    impl_->end_row();
}

void RunWriter::begin_start(const RunStart& start) {
    RunRecord& r = impl_->record;
    r.starts.push_back(start);
    RunStart& begun = r.starts.back();
    begun.started = now_utc();
    if (!impl_->reopened) {  // what made it is what made the file
        begun.provenance = r.provenance;
        begun.git_diff = r.git_diff;
    }
    impl_->changed = true;
    impl_->flush();
}

void RunWriter::end_start(std::int64_t to_step, const std::string& reason, double seconds) {
    PALIMPSEST_ASSERT(!impl_->record.starts.empty(), "end_start without begin_start in {}", impl_->path);
    RunStart& start = impl_->record.starts.back();
    start.to_step = to_step;
    start.ended = now_utc();
    start.reason = reason;
    start.seconds = seconds;
    impl_->changed = true;
    impl_->flush();
}

double RunWriter::seconds() const {
    double sum = 0;
    for (const RunStart& start : impl_->record.starts) sum += start.seconds;
    return sum;
}

void RunWriter::artifact(const std::string& path, std::int64_t bytes, const std::string& sha256) {
    std::vector<Artifact>& known = impl_->record.artifacts;
    auto found = std::find_if(known.begin(), known.end(), [&](const Artifact& other) { return other.path == path; });
    if (found == known.end()) found = known.insert(found, Artifact{});
    *found = {path, bytes, sha256};
    impl_->changed = true;
}

void RunWriter::flush() { impl_->flush(); }

void RunWriter::finish(const std::string& status, const std::vector<std::tuple<std::string, double, std::string>>& summary,
                       const Attributes& summary_attributes) {
    Impl& w = *impl_;
    PALIMPSEST_ASSERT(!w.finished, "finish() of {} twice", w.path);
    w.record.status = status;
    w.record.finished = now_utc();
    w.record.summary_attributes = summary_attributes;
    try {
        w.write(summary);
    } catch (...) {  // the run has not ended so, and may end otherwise
        w.remove_end();
        w.changed = true;
        throw;
    }
    w.finished = true;
    w.record = {};
}

}  // namespace palimpsest
