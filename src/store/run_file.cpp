#include "store/run_file.h"

#include "core/error.h"
#include "core/file.h"
#include "store/hdf5.h"
#include "store/layout.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>

namespace palimpsest {
namespace {

using Clock = std::chrono::steady_clock;
using hdf5::Handle;

constexpr std::size_t batch_rows = 256, most_rows = 65536;
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

// One cell of a small table; the row is added where there is none yet.
void write_cell(hid_t group, const std::string& column, hsize_t row, const Attribute& value) {
    const Handle dataset = hdf5::open_dataset(group, column);
    std::visit([&](const auto& cell) { hdf5::write_rows(dataset, row, std::span(&cell, 1)); }, value);
}

// In the order of a row.
std::vector<std::string> metric_names(hid_t file) {
    std::vector<std::string> names = hdf5::children(hdf5::open_group(file, "train"));
    std::erase(names, "step");
    return names;
}

std::int64_t status_code(const std::string& status) {
    const auto* found = std::find(std::begin(state_names), std::end(state_names), status);
    PALIMPSEST_ASSERT(found != std::end(state_names), "'{}' is no state of a run", status);
    return found - std::begin(state_names);
}

}  // namespace

struct RunWriter::Impl {
    std::string path;
    double flush_seconds = 2;
    MayWrite may_write;
    bool reopened = false;
    Handle file;
    std::vector<std::string> metrics;
    std::size_t slices = 0, classes = 0, policies = 0;

    // Rows not yet in `file`. Texts and other rare things go there at once.
    std::vector<std::int64_t> train_steps, eval_steps, eval_answers, system_steps, system_bytes;
    std::vector<std::vector<float>> train_columns;
    std::vector<double> eval_losses, system_seconds;
    std::vector<float> system_rates;
    std::int64_t last_train = std::numeric_limits<std::int64_t>::min(), last_eval = last_train, last_system = last_train;

    bool published = true, finished = false;
    Clock::time_point last_publication = Clock::now();
    double cost = 0;

    std::size_t buffered() const { return train_steps.size() + eval_steps.size() + system_steps.size(); }

    Handle group(const char* name) const { return hdf5::open_group(file, name); }

    void added(std::int64_t step, std::int64_t& last) {
        PALIMPSEST_ASSERT(!finished, "a row after finish() of {}", path);
        PALIMPSEST_ASSERT(step > last, "{}: steps must increase, got {} after {}", path, step, last);
        last = step;
        const double waited = seconds_since(last_publication);
        const bool due = buffered() >= batch_rows || waited >= flush_seconds;
        if ((due && waited * most_time >= cost) || buffered() >= most_rows) flush();
    }

    template <class T>
    static void move_rows(hid_t group, const std::string& name, std::vector<T>& values, hsize_t first) {
        hdf5::write_rows(hdf5::open_dataset(group, name), first, values);
        values.clear();
    }

    // The index of each table last: a reader trusts its length.
    void move_buffers() {
        if (!train_steps.empty()) {
            const Handle train = group("train");
            const hsize_t first = rows_of(train, "step");
            for (std::size_t i = 0; i < metrics.size(); ++i) move_rows(train, metrics[i], train_columns[i], first);
            move_rows(train, "step", train_steps, first);
        }
        if (!eval_steps.empty()) {
            const Handle eval = group("eval");
            const hsize_t first = rows_of(eval, "eval_step");
            move_rows(eval, "answers", eval_answers, first);
            move_rows(eval, "loss_sum", eval_losses, first);
            move_rows(eval, "eval_step", eval_steps, first);
        }
        if (!system_steps.empty()) {
            const Handle system = group("system");
            const hsize_t first = rows_of(system, "time_step");
            move_rows(system, "seconds", system_seconds, first);
            move_rows(system, "tokens_per_second", system_rates, first);
            move_rows(system, "gpu_bytes_peak", system_bytes, first);
            move_rows(system, "time_step", system_steps, first);
        }
    }

    void flush() {
        if (buffered() == 0 && published) return;
        const Clock::time_point start = Clock::now();
        published = false;
        guarded([&] {
            move_buffers();
            write(file);
        });
        published = true;
        last_publication = Clock::now();
        cost = seconds_since(start);
    }

    void write(hid_t whole) const {
        const std::string image = hdf5::image(whole);
        if (may_write) may_write();
        publish(path, image);
    }

    // The library's failures, with the path.
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
        const Handle eval = group("eval");
        metrics = metric_names(file);
        train_columns.resize(metrics.size());
        if (hdf5::exists(eval, "slice")) slices = rows_of(eval, "slice");
        if (hdf5::exists(eval, "answer_class")) classes = rows_of(eval, "answer_class");
        if (hdf5::exists(eval, "policy")) policies = rows_of(eval, "policy");
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
        const Handle source = hdf5::open_file(read_file(impl->path));
        check_layout(header, record, metric_names(source), impl->path);
        hdf5::CopyOptions options;
        for (const auto& [group, index] : {std::pair{"train", "step"}, {"eval", "eval_step"}, {"system", "time_step"}}) {
            const std::vector<std::int64_t> steps = hdf5::read_integers(hdf5::open_dataset(hdf5::open_group(source, group), index));
            const auto kept = std::upper_bound(steps.begin(), steps.end(), step) - steps.begin();
            options.rows.emplace_back(fmt::format("/{}/{}", group, index), static_cast<hsize_t>(kept));
            std::int64_t& last = group[0] == 't' ? impl->last_train : group[0] == 'e' ? impl->last_eval : impl->last_system;
            if (kept > 0) last = steps[static_cast<std::size_t>(kept) - 1];
        }
        options.skip = {"/@status", "/@status_code", "/@finished", "/@format_version"};
        const Handle summary = hdf5::open_group(source, "summary");
        for (const std::string& name : hdf5::children(summary)) options.skip.push_back("/summary/" + name);
        for (const auto& [name, value] : hdf5::read_attributes(summary)) options.skip.push_back("/summary/@" + name);
        impl->file = hdf5::copy_file(source, options);
        hdf5::write_attribute(hdf5::open_group(impl->file, "/"), "format_version", std::string(format_version));
        complete_layout(impl->file);
        impl->learn_layout();

        // A start that was killed could not say so itself.
        const Handle starts = impl->group("starts"), system = hdf5::open_group(source, "system");
        const std::vector<std::int64_t> measured = hdf5::read_integers(hdf5::open_dataset(system, "time_step"));
        const std::vector<double> seconds = hdf5::read_doubles(hdf5::open_dataset(system, "seconds"));
        for (std::size_t row = 0; row < record.starts.size(); ++row) {
            const RunStart& start = record.starts[row];
            if (!start.reason.empty()) continue;
            const bool measured_it = !measured.empty() && measured.back() > start.from_step && seconds.size() == measured.size();
            write_cell(starts, "to_step", row,
                       record.step.empty() ? start.from_step : std::max(start.from_step, record.step.back()));
            write_cell(starts, "reason", row, std::string("lost"));
            write_cell(starts, "seconds", row, measured_it ? seconds.back() : 0.0);
        }
    });
    impl->published = false;
    impl->flush();
    return RunWriter(std::move(impl));
}

void RunWriter::train_row(std::int64_t step, std::span<const float> metrics) {
    Impl& w = *impl_;
    PALIMPSEST_ASSERT(metrics.size() == w.metrics.size(), "{} metrics, {} columns", metrics.size(), w.metrics.size());
    w.train_steps.push_back(step);
    for (std::size_t i = 0; i < metrics.size(); ++i) w.train_columns[i].push_back(metrics[i]);
    w.added(step, w.last_train);
}

void RunWriter::eval_row(std::int64_t step, std::span<const std::int64_t> answers, std::span<const double> loss_sum) {
    Impl& w = *impl_;
    PALIMPSEST_ASSERT(w.slices > 0 && answers.size() == w.slices * w.classes && loss_sum.size() == w.slices,
                      "{} answers, {} losses, {} slices, {} classes", answers.size(), loss_sum.size(), w.slices, w.classes);
    w.eval_steps.push_back(step);
    w.eval_answers.insert(w.eval_answers.end(), answers.begin(), answers.end());
    w.eval_losses.insert(w.eval_losses.end(), loss_sum.begin(), loss_sum.end());
    w.added(step, w.last_eval);
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
    w.system_steps.push_back(step);
    w.system_seconds.push_back(seconds);
    w.system_rates.push_back(static_cast<float>(tokens_per_second));
    w.system_bytes.push_back(gpu_bytes_peak);
    w.added(step, w.last_system);
}

void RunWriter::begin_start(const RunStart& start) {
    Impl& w = *impl_;
    w.guarded([&] {
        const Handle starts = w.group("starts");
        const hsize_t row = rows_of(starts, "start");
        const std::pair<const char*, Attribute> cells[] = {
            {"host", start.host},           {"device", start.device},      {"started", utc_now()},
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
        write_cell(starts, "ended", rows - 1, utc_now());
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
        w.move_buffers();
        hdf5::CopyOptions compressed;
        compressed.compress = true;
        const Handle file = hdf5::copy_file(w.file, compressed);
        const Handle root = hdf5::open_group(file, "/"), group = hdf5::open_group(file, "summary");
        hdf5::write_attribute(root, "status", status);
        hdf5::write_attribute(root, "status_code", code);
        hdf5::write_attribute(root, "finished", utc_now());
        for (const auto& [name, value, unit] : summary) {
            check_metric_name(name);
            hdf5::write_scalar(hdf5::create_dataset(group, name, hdf5::Type::f8, {}, unit), value);
        }
        for (const auto& [name, value] : summary_attributes) hdf5::write_attribute(group, name, value);
        w.write(file);
    });
    w.finished = true;
    w.file = Handle();
}

}  // namespace palimpsest
