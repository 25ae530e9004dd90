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

namespace palimpsest {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t batch_rows = 256;
constexpr double most_time = 1.0 / 20;  // share of the run's time that publishing may take

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A killed writer leaves its temporary file behind; the next writer of the same run removes it.
void remove_leftovers(const std::string& folder) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        if (name.rfind("run.h5.tmp", 0) == 0) std::filesystem::remove(entry->path(), error);
    }
}

// A start that was killed could not say so itself.
void end_lost_starts(RunRecord& record) {
    for (RunStart& start : record.starts) {
        if (!start.reason.empty()) continue;
        start.to_step = record.step.empty() ? start.from_step : std::max(start.from_step, record.step.back());
        start.reason = "lost";
        start.seconds = !record.system.empty() && record.system.back().step > start.from_step ? record.system.back().seconds : 0.0;
    }
}

void cut_rows(RunRecord& record, std::int64_t step) {
    for (auto* steps : {&record.step, &record.eval_step}) std::erase_if(*steps, [&](std::int64_t s) { return s > step; });
    for (auto& [name, column] : record.train) column.resize(record.step.size());
    record.loss_sum.resize(record.eval_step.size() * record.slices.size());
    record.answers.resize(record.loss_sum.size() * record.answer_classes.size());
    std::erase_if(record.system, [&](const SystemRow& row) { return row.step > step; });
}

// The status and the summary belong to the end of a run: one that goes on has neither.
void remove_end(RunRecord& record) {
    record.status = record.finished = "";
    record.summary.clear();
    record.summary_attributes.clear();
}

}  // namespace

RunWriter::RunWriter(const std::string& folder, double flush_seconds, MayWrite may_write)
    : path_(folder + "/run.h5"), flush_seconds_(flush_seconds), may_write_(std::move(may_write)) {
    if (may_write_) may_write_();
    remove_leftovers(folder);
}

RunWriter::RunWriter(const std::string& folder, const RunHeader& header, double flush_seconds, MayWrite may_write)
    : RunWriter(folder, flush_seconds, std::move(may_write)) {
    static_cast<RunHeader&>(record_) = header;
    record_.created = now_utc();
    for (const Metric& metric : header.train_metrics) {
        check_metric_name(metric.name);
        record_.train[metric.name];
    }
    if (!create_file(path_, image())) fail(ExitCode::run_failed, "'{}' exists already; a run's file is never overwritten", path_);
}

RunWriter::RunWriter(const std::string& folder, const RunHeader& header, std::int64_t step, double flush_seconds,
                     MayWrite may_write)
    : RunWriter(folder, flush_seconds, std::move(may_write)) {
    record_ = read_run(path_);  // refuses a damaged or foreign file in the reader's words
    check_layout(header, record_, path_);
    end_lost_starts(record_);
    cut_rows(record_, step);
    remove_end(record_);
    publish_all();
}

RunWriter RunWriter::create(const std::string& folder, const RunHeader& header, double flush_seconds, MayWrite may_write) {
    return {folder, header, flush_seconds, std::move(may_write)};
}

RunWriter RunWriter::reopen(const std::string& folder, const RunHeader& header, std::int64_t step, double flush_seconds,
                            MayWrite may_write) {
    return {folder, header, step, flush_seconds, std::move(may_write)};
}

RunWriter::~RunWriter() {
    try {
        flush();
    } catch (const std::exception&) {
        // Somebody who needs to know calls flush(); a destructor can only try.
    }
}

std::string RunWriter::image() const {
    try {
        return run_image(record_);
    } catch (const hdf5::Failure& failure) {
        fail(ExitCode::run_failed, "cannot write '{}': {}", path_, failure.what());
    }
}

void RunWriter::publish_all() {
    const std::string bytes = image();
    if (may_write_) may_write_();
    publish(bytes, path_);
    changed_ = false;
    gathered_ = 0;
}

void RunWriter::flush() {
    if (!changed_) return;
    const Clock::time_point start = Clock::now();
    publish_all();
    last_publication_ = Clock::now();
    cost_ = seconds_since(start);
}

void RunWriter::change() {
    PALIMPSEST_ASSERT(!finished_, "{} has finished, and is written no more", path_);
    changed_ = true;
}

void RunWriter::begin_row(std::int64_t last, std::int64_t step) {
    PALIMPSEST_ASSERT(step > last, "{}: steps must increase, got {} after {}", path_, step, last);
    change();
    ++gathered_;
}

void RunWriter::end_row() {
    const double waited = seconds_since(last_publication_);
    if ((gathered_ >= batch_rows || waited >= flush_seconds_) && waited * most_time >= cost_) flush();
}

void RunWriter::train_row(std::int64_t step, std::span<const float> metrics) {
    const std::vector<Metric>& columns = record_.train_metrics;
    PALIMPSEST_ASSERT(metrics.size() == columns.size(), "{} metrics, {} columns", metrics.size(), columns.size());
    begin_row(record_.step.empty() ? -1 : record_.step.back(), step);
    record_.step.push_back(step);
    for (std::size_t i = 0; i < metrics.size(); ++i) record_.train.at(columns[i].name).push_back(metrics[i]);
    end_row();
}

void RunWriter::eval_row(std::int64_t step, std::span<const std::int64_t> answers, std::span<const double> loss_sum) {
    const std::size_t slices = record_.slices.size(), classes = record_.answer_classes.size();
    PALIMPSEST_ASSERT(slices > 0 && answers.size() == slices * classes && loss_sum.size() == slices,
                      "{} answers, {} losses, {} slices, {} classes", answers.size(), loss_sum.size(), slices, classes);
    begin_row(record_.eval_step.empty() ? -1 : record_.eval_step.back(), step);
    record_.eval_step.push_back(step);
    record_.answers.insert(record_.answers.end(), answers.begin(), answers.end());
    record_.loss_sum.insert(record_.loss_sum.end(), loss_sum.begin(), loss_sum.end());
    end_row();
}

void RunWriter::policy_answers(std::span<const std::int64_t> answers) {
    change();
    const RunRecord& r = record_;
    if (r.policies.empty()) return;  // a file of an older version, which began without them
    PALIMPSEST_ASSERT(answers.size() == r.policies.size() * r.slices.size() * r.answer_classes.size(),
                      "{} answers, {} policies, {} slices, {} classes", answers.size(), r.policies.size(), r.slices.size(),
                      r.answer_classes.size());
    record_.policy_answers.assign(answers.begin(), answers.end());
}

void RunWriter::system_row(const SystemRow& row) {
    begin_row(record_.system.empty() ? -1 : record_.system.back().step, row.step);
    record_.system.push_back(row);
    end_row();
}

void RunWriter::begin_start(const RunStart& start) {
    change();
    record_.starts.push_back(start);
    record_.starts.back().started = now_utc();
    flush();
}

void RunWriter::end_start(std::int64_t to_step, const std::string& reason, double seconds) {
    change();
    PALIMPSEST_ASSERT(!record_.starts.empty(), "end_start without begin_start in {}", path_);
    RunStart& start = record_.starts.back();
    start.to_step = to_step;
    start.ended = now_utc();
    start.reason = reason;
    start.seconds = seconds;
}

double RunWriter::seconds() const {
    double sum = 0;
    for (const RunStart& start : record_.starts) sum += start.seconds;
    return sum;
}

void RunWriter::artifact(const Artifact& artifact) {
    change();
    std::erase_if(record_.artifacts, [&](const Artifact& known) { return known.path == artifact.path; });
    record_.artifacts.push_back(artifact);
}

void RunWriter::finish(const std::string& status, const std::map<std::string, double>& summary,
                       const Attributes& summary_attributes) {
    change();
    record_.status = status;
    record_.finished = now_utc();
    record_.summary = summary;
    record_.summary_attributes = summary_attributes;
    try {
        publish_all();
    } catch (...) {  // the run has not ended so, and may end otherwise
        remove_end(record_);
        throw;
    }
    finished_ = true;
}

}  // namespace palimpsest
