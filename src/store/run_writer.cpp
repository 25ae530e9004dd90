#include "store/run_writer.h"

#include "core/error.h"
#include "core/file.h"
#include "core/time.h"
#include "store/hdf5.h"
#include "store/run_layout.h"
#include "store/run_reader.h"
#include "store/run_state.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>

namespace palimpsest {
namespace {

using Clock = std::chrono::steady_clock;
using hdf5::Handle;

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

hsize_t rows_of(hid_t group, const std::string& name) { return hdf5::shape(hdf5::open_dataset(group, name))[0]; }

// Writes one cell of a small table; the row is added where there is none yet.
void write_cell(hid_t group, const std::string& column, hsize_t row, const Attribute& value) {
    const Handle dataset = hdf5::open_dataset(group, column);
    std::visit([&](const auto& cell) { hdf5::write_rows(dataset, row, std::span(&cell, 1)); }, value);
}

std::int64_t status_code(const std::string& status) {
    const auto* found = std::find(std::begin(state_names), std::end(state_names), status);
    PALIMPSEST_ASSERT(found != std::end(state_names), "'{}' is no state of a run", status);
    return found - std::begin(state_names);
}

// The status and the summary belong to the end of a run: one that goes on has neither.
void remove_end(hid_t root) {
    for (const char* name : {"status", "status_code", "finished"}) hdf5::remove_attribute(root, name);
    hdf5::remove(root, "summary");
    hdf5::create_group(root, "summary");
}

// A group of the file with an index of steps and columns over it. New rows gather here until move_rows() takes them into the file,
// since the library takes long for a row alone.
class StepTable {
public:
    StepTable() = default;
    StepTable(const Handle& group, const char* index) : index_(hdf5::open_dataset(group, index)) {
        rows_ = hdf5::shape(index_)[0];
        if (const std::vector<std::int64_t> steps = hdf5::read_integers(index_); !steps.empty()) last_ = steps.back();
        for (const std::string& child : hdf5::children(group)) {
            if (hdf5::is_group(group, child)) continue;
            Handle dataset = hdf5::open_dataset(group, child);
            if (hdf5::is_attached(dataset, 0, index_)) columns_.push_back({child, std::move(dataset), {}});
        }
    }

    std::size_t columns() const { return columns_.size(); }
    std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (const Column& column : columns_) names.push_back(column.name);
        return names;
    }
    std::size_t gathered() const { return steps_.size(); }

    // Cuts off the rows beyond `step`.
    void cut(std::int64_t step) {
        const std::vector<std::int64_t> steps = hdf5::read_integers(index_);
        rows_ = static_cast<hsize_t>(std::upper_bound(steps.begin(), steps.end(), step) - steps.begin());
        last_ = rows_ > 0 ? steps[rows_ - 1] : before_any;
        for (const Column& column : columns_) hdf5::resize_rows(column.dataset, rows_);
        hdf5::resize_rows(index_, rows_);
    }

    // Adds the cells of one column to the row that end_row() completes.
    template <class T>
    void add(std::size_t column, std::span<const T> cells) {
        auto& values = columns_[column].values;
        if (!std::holds_alternative<std::vector<T>>(values)) values.template emplace<std::vector<T>>();
        auto& of_type = std::get<std::vector<T>>(values);
        of_type.insert(of_type.end(), cells.begin(), cells.end());
    }
    template <class T>
    void add(const char* column, std::span<const T> cells) {
        const auto is_it = [&](const Column& known) { return known.name == column; };
        const auto found = std::find_if(columns_.begin(), columns_.end(), is_it);
        PALIMPSEST_ASSERT(found != columns_.end(), "no column '{}'", column);
        add(static_cast<std::size_t>(found - columns_.begin()), cells);
    }
    void end_row(std::int64_t step, const std::string& path) {
        PALIMPSEST_ASSERT(step > last_, "{}: steps must increase, got {} after {}", path, step, last_);
        steps_.push_back(last_ = step);
    }

    // The index comes last: a reader trusts its length.
    void move_rows() {
        if (steps_.empty()) return;
        for (Column& column : columns_) {
            const auto write = [&](auto& values) {
                hdf5::write_rows(column.dataset, rows_, values);
                values.clear();
            };
            std::visit(write, column.values);
        }
        hdf5::write_rows(index_, rows_, steps_);
        rows_ += steps_.size();
        steps_.clear();
    }

private:
    static constexpr std::int64_t before_any = std::numeric_limits<std::int64_t>::min();
    struct Column {
        std::string name;
        Handle dataset;
        std::variant<std::vector<std::int64_t>, std::vector<float>, std::vector<double>> values;
    };
    Handle index_;
    hsize_t rows_ = 0;
    std::int64_t last_ = before_any;
    std::vector<Column> columns_;
    std::vector<std::int64_t> steps_;
};

}  // namespace

struct RunWriter::Impl {
    std::string path;
    double flush_seconds = 2;
    MayWrite may_write;
    bool reopened = false;
    Handle file;
    StepTable train, eval, system;
    std::size_t slices = 0, classes = 0, policies = 0;

    bool published = true, finished = false;
    Clock::time_point last_publication = Clock::now();
    double cost = 0;

    std::size_t gathered() const { return train.gathered() + eval.gathered() + system.gathered(); }

    Handle group(const char* name) const { return hdf5::open_group(file, name); }

    void end_row(StepTable& table, std::int64_t step) {
        PALIMPSEST_ASSERT(!finished, "a row after finish() of {}", path);
        table.end_row(step, path);
        const double waited = seconds_since(last_publication);
        if ((gathered() >= batch_rows || waited >= flush_seconds) && waited * most_time >= cost) flush();
    }

    void flush() {
        if (gathered() == 0 && published) return;
        const Clock::time_point start = Clock::now();
        published = false;
        guarded([&] { write(); });
        last_publication = Clock::now();
        cost = seconds_since(start);
    }

    void write() {
        for (StepTable* table : {&train, &eval, &system}) table->move_rows();
        if (may_write) may_write();
        publish(file, path);
        published = true;
    }

    // Calls `function`, and adds the path to what the library says against it.
    template <class F>
    void guarded(const F& function) const {
        const hdf5::Guard guard;
        try {
            function();
        } catch (const hdf5::Failure& failure) {
            fail(ExitCode::run_failed, "cannot write '{}': {}", path, failure.what());
        }
    }

    void learn_layout() {
        const Handle questions = group("eval");
        train = StepTable(group("train"), "step");
        eval = StepTable(questions, "eval_step");
        system = StepTable(group("system"), "time_step");
        if (hdf5::exists(questions, "slice")) slices = rows_of(questions, "slice");
        if (hdf5::exists(questions, "answer_class")) classes = rows_of(questions, "answer_class");
        if (hdf5::exists(questions, "policy")) policies = rows_of(questions, "policy");
    }

    // A start that was killed could not say so itself.
    void end_lost_starts(const RunRecord& record) {
        const Handle starts = group("starts"), measurements = group("system");
        const std::vector<std::int64_t> steps = hdf5::read_integers(hdf5::open_dataset(measurements, "time_step"));
        const std::vector<double> seconds = hdf5::read_doubles(hdf5::open_dataset(measurements, "seconds"));
        for (std::size_t row = 0; row < record.starts.size(); ++row) {
            const RunStart& start = record.starts[row];
            if (!start.reason.empty()) continue;
            const bool measured_it = !steps.empty() && steps.back() > start.from_step && seconds.size() == steps.size();
            write_cell(starts, "to_step", row,
                       record.step.empty() ? start.from_step : std::max(start.from_step, record.step.back()));
            write_cell(starts, "reason", row, std::string("lost"));
            write_cell(starts, "seconds", row, measured_it ? seconds.back() : 0.0);
        }
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
    bool created = false;
    impl->guarded([&] {
        impl->file = create_run_layout(header);
        impl->learn_layout();
        created = create_file(impl->path, hdf5::image(impl->file));
    });
    if (!created) fail(ExitCode::run_failed, "'{}' exists already; a run's file is never overwritten", impl->path);
    return RunWriter(std::move(impl));
}

RunWriter RunWriter::reopen(const std::string& folder, const RunHeader& header, std::int64_t step, double flush_seconds,
                            MayWrite may_write) {
    std::unique_ptr<Impl> impl = begin(folder, flush_seconds, std::move(may_write));
    impl->reopened = true;
    const RunRecord record = read_run(impl->path);  // refuses a damaged or foreign file in the reader's words
    impl->guarded([&] {
        impl->file = hdf5::open_file(read_file(impl->path), hdf5::Access::write);
        const Handle root = impl->group("/");
        complete_layout(root);
        impl->learn_layout();
        check_layout(header, record, impl->train.names(), impl->path);
        impl->end_lost_starts(record);
        for (StepTable* table : {&impl->train, &impl->eval, &impl->system}) table->cut(step);
        remove_end(root);
    });
    impl->published = false;
    impl->flush();
    return RunWriter(std::move(impl));
}

void RunWriter::train_row(std::int64_t step, std::span<const float> metrics) {
    Impl& w = *impl_;
    PALIMPSEST_ASSERT(metrics.size() == w.train.columns(), "{} metrics, {} columns", metrics.size(), w.train.columns());
    for (std::size_t i = 0; i < metrics.size(); ++i) w.train.add(i, metrics.subspan(i, 1));
    w.end_row(w.train, step);
}

void RunWriter::eval_row(std::int64_t step, std::span<const std::int64_t> answers, std::span<const double> loss_sum) {
    Impl& w = *impl_;
    PALIMPSEST_ASSERT(w.slices > 0 && answers.size() == w.slices * w.classes && loss_sum.size() == w.slices,
                      "{} answers, {} losses, {} slices, {} classes", answers.size(), loss_sum.size(), w.slices, w.classes);
    w.eval.add("answers", answers);
    w.eval.add("loss_sum", loss_sum);
    w.end_row(w.eval, step);
}

void RunWriter::policy_answers(std::span<const std::int64_t> answers) {
    Impl& w = *impl_;
    if (w.policies == 0) return;  // a file of an older version, which began without them
    PALIMPSEST_ASSERT(answers.size() == w.policies * w.slices * w.classes, "{} answers, {} policies, {} slices, {} classes",
                      answers.size(), w.policies, w.slices, w.classes);
    if (answers.empty()) return;
    w.guarded([&] { hdf5::write_rows(hdf5::open_dataset(w.group("eval"), "policy_answers"), 0, answers); });
    w.published = false;
}

void RunWriter::system_row(std::int64_t step, double seconds, double tokens_per_second, std::int64_t gpu_bytes_peak) {
    Impl& w = *impl_;
    w.system.add("seconds", std::span<const double>(&seconds, 1));
    w.system.add("tokens_per_second", std::span<const double>(&tokens_per_second, 1));
    w.system.add("gpu_bytes_peak", std::span<const std::int64_t>(&gpu_bytes_peak, 1));
    w.end_row(w.system, step);
}

void RunWriter::begin_start(const RunStart& start) {
    Impl& w = *impl_;
    w.guarded([&] {
        const Handle starts = w.group("starts");
        const hsize_t row = rows_of(starts, "start");
        const std::pair<const char*, Attribute> cells[] = {
            {"host", start.host},           {"device", start.device},      {"started", now_utc()},
            {"from_step", start.from_step}, {"to_step", std::int64_t{-1}}, {"ended", std::string()},
            {"reason", std::string()},      {"seconds", start.seconds},    {"start", static_cast<std::int64_t>(row)}};
        for (const auto& [name, value] : cells) write_cell(starts, name, row, value);
        if (w.reopened) write_start(w.file, static_cast<std::size_t>(row), start);
    });
    w.published = false;
    w.flush();
}

void RunWriter::end_start(std::int64_t to_step, const std::string& reason, double seconds) {
    Impl& w = *impl_;
    w.guarded([&] {
        const Handle starts = w.group("starts");
        const hsize_t rows = rows_of(starts, "start");
        PALIMPSEST_ASSERT(rows > 0, "end_start without begin_start in {}", w.path);
        write_cell(starts, "to_step", rows - 1, to_step);
        write_cell(starts, "ended", rows - 1, now_utc());
        write_cell(starts, "reason", rows - 1, reason);
        write_cell(starts, "seconds", rows - 1, seconds);
    });
    w.published = false;
    w.flush();
}

double RunWriter::seconds() const {
    double sum = 0;
    impl_->guarded([&] {
        for (const double seconds : hdf5::read_doubles(hdf5::open_dataset(impl_->group("starts"), "seconds"))) sum += seconds;
    });
    return sum;
}

void RunWriter::artifact(const std::string& path, std::int64_t bytes, const std::string& sha256) {
    Impl& w = *impl_;
    w.guarded([&] {
        const Handle artifacts = w.group("artifacts");
        const std::vector<std::string> known = hdf5::read_texts(hdf5::open_dataset(artifacts, "path"));
        const auto row = static_cast<hsize_t>(std::find(known.begin(), known.end(), path) - known.begin());
        write_cell(artifacts, "path", row, path);
        write_cell(artifacts, "bytes", row, bytes);
        write_cell(artifacts, "sha256", row, sha256);
        write_cell(artifacts, "artifact", row, static_cast<std::int64_t>(row));
    });
    w.published = false;
}

void RunWriter::flush() { impl_->flush(); }

void RunWriter::finish(const std::string& status, const std::vector<std::tuple<std::string, double, std::string>>& summary,
                       const Attributes& summary_attributes) {
    Impl& w = *impl_;
    PALIMPSEST_ASSERT(!w.finished, "finish() of {} twice", w.path);
    const std::int64_t code = status_code(status);
    w.guarded([&] {
        const Handle root = w.group("/");
        try {
            hdf5::write_attribute(root, "status", status);
            hdf5::write_attribute(root, "status_code", code);
            hdf5::write_attribute(root, "finished", now_utc());
            const Handle group = w.group("summary");
            for (const auto& [name, value, unit] : summary) {
                check_metric_name(name);
                hdf5::create_number(group, name, value, unit);
            }
            for (const auto& [name, value] : summary_attributes) hdf5::write_attribute(group, name, value);
            w.write();
        } catch (...) {  // the run has not ended so, and may end otherwise
            remove_end(root);
            throw;
        }
    });
    w.finished = true;
    for (StepTable* table : {&w.train, &w.eval, &w.system}) *table = StepTable();
    w.file = Handle();
}

}  // namespace palimpsest
