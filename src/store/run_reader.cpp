#include "store/run_reader.h"

#include "core/error.h"
#include "core/file.h"
#include "store/hdf5.h"
#include "store/run_layout.h"

#include <algorithm>
#include <array>
#include <limits>

namespace palimpsest {
namespace {

using hdf5::Handle;

constexpr int major_version = 1;

std::string text_attribute(hid_t object, const std::string& name) {
    const std::optional<Attribute> value = hdf5::read_attribute(object, name);
    const auto* text = value ? std::get_if<std::string>(&*value) : nullptr;
    return text == nullptr ? "" : *text;
}

void check_format(hid_t root, const std::string& file, RunRecord& record) {
    if (text_attribute(root, "format") != run_format) throw DamagedRun(fmt::format("'{}' is not the file of a run", file));
    record.format_version = text_attribute(root, "format_version");
    const std::string major = record.format_version.substr(0, record.format_version.find('.'));
    if (major != std::to_string(major_version)) {
        fail(ExitCode::run_failed, "'{}' was written by format {}; this tool reads {}.x", file, record.format_version,
             major_version);
    }
}

template <class T>
void trust(std::vector<T>& column, std::size_t rows, const std::string& name) {
    if (column.size() < rows) throw hdf5::Failure(fmt::format("column '{}' is shorter than its index", name));
    column.resize(rows);
}

void read_log(hid_t root, RunRecord& record) {
    record.tokens_per_second = hdf5::read_doubles(hdf5::open_dataset(hdf5::open_group(root, "system"), "tokens_per_second"));
    const Handle group = hdf5::open_group(root, "train");
    record.step = hdf5::read_integers(hdf5::open_dataset(group, "step"));
    for (const std::string& name : hdf5::children(group)) {
        if (name == "step") continue;
        std::vector<float> column = hdf5::read_floats(hdf5::open_dataset(group, name));
        trust(column, record.step.size(), name);
        record.train.emplace(name, std::move(column));
    }
}

void read_eval(hid_t root, RunRecord& record, bool with_answers) {
    const Handle group = hdf5::open_group(root, "eval");
    if (with_answers) record.eval_step = hdf5::read_integers(hdf5::open_dataset(group, "eval_step"));
    if (!hdf5::exists(group, "slice")) return;
    const auto integers = [&](const char* name) { return hdf5::read_integers(hdf5::open_dataset(group, name)); };
    const auto texts = [&](const char* name) { return hdf5::read_texts(hdf5::open_dataset(group, name)); };
    record.slices.resize(integers("slice").size());
    const auto fill = [&](const char* name, std::int64_t Slice::*member) {
        std::vector<std::int64_t> column = integers(name);
        trust(column, record.slices.size(), name);
        for (std::size_t i = 0; i < column.size(); ++i) record.slices[i].*member = column[i];
    };
    fill("slice_split", &Slice::split);
    fill("slice_segment", &Slice::segment);
    fill("slice_overwrites", &Slice::overwrites);
    fill("slice_distance_from", &Slice::distance_from);
    fill("slice_distance_to", &Slice::distance_to);
    std::vector<std::string> labels = texts("slice_label");
    trust(labels, record.slices.size(), "slice_label");
    for (std::size_t i = 0; i < labels.size(); ++i) record.slices[i].label = std::move(labels[i]);

    record.answer_classes = texts("answer_class");
    if (hdf5::exists(group, "policy")) {
        const std::vector<std::int64_t> scored = integers("policy_answers");
        if (std::any_of(scored.begin(), scored.end(), [](std::int64_t count) { return count >= 0; }))
            record.policy_names = texts("policy");
        if (with_answers && !record.policy_names.empty()) record.policy_answers = scored;
    }
    if (!with_answers) return;
    record.answers = integers("answers");
    trust(record.answers, record.eval_step.size() * record.slices.size() * record.answer_classes.size(), "answers");
    record.loss_sum = hdf5::read_doubles(hdf5::open_dataset(group, "loss_sum"));
    trust(record.loss_sum, record.eval_step.size() * record.slices.size(), "loss_sum");
    trust(record.policy_answers, record.policy_names.size() * record.slices.size() * record.answer_classes.size(),
          "policy_answers");
}

void read_results(hid_t root, RunRecord& record) {
    const Handle summary = hdf5::open_group(root, "summary");
    for (const std::string& name : hdf5::children(summary)) {
        const std::vector<double> value = hdf5::read_doubles(hdf5::open_dataset(summary, name));
        if (value.size() == 1) record.summary.emplace(name, value[0]);
    }
    record.summary_attributes = hdf5::read_attributes(summary);

    constexpr std::array<std::string_view, 3> config_texts = {"resolved_yaml", "source_yaml", "overrides"};
    record.config = hdf5::read_properties(hdf5::open_group(root, "config"), config_texts);
}

void read_origin(hid_t root, RunRecord& record) {
    std::vector<std::string> yaml = hdf5::read_texts(hdf5::open_dataset(hdf5::open_group(root, "config"), "resolved_yaml"));
    trust(yaml, 1, "resolved_yaml");
    record.resolved_yaml = yaml[0];
    constexpr std::array<std::string_view, 1> provenance_texts = {"git_diff"};
    const Handle provenance = hdf5::open_group(root, "provenance");
    record.provenance = hdf5::read_properties(provenance, provenance_texts);

    const Handle starts = hdf5::open_group(root, "starts");
    record.starts.resize(hdf5::read_integers(hdf5::open_dataset(starts, "start")).size());
    const auto fill = [&](const char* name, auto read, auto RunStart::*member) {
        if (!hdf5::exists(starts, name)) return;  // of a later minor version
        auto column = read(hdf5::open_dataset(starts, name));
        trust(column, record.starts.size(), name);
        for (std::size_t i = 0; i < column.size(); ++i) record.starts[i].*member = column[i];
    };
    fill("host", hdf5::read_texts, &RunStart::host);
    fill("device", hdf5::read_texts, &RunStart::device);
    fill("started", hdf5::read_texts, &RunStart::started);
    fill("from_step", hdf5::read_integers, &RunStart::from_step);
    fill("to_step", hdf5::read_integers, &RunStart::to_step);
    fill("ended", hdf5::read_texts, &RunStart::ended);
    fill("reason", hdf5::read_texts, &RunStart::reason);
    fill("seconds", hdf5::read_doubles, &RunStart::seconds);
    for (std::size_t i = 0; i < record.starts.size(); ++i) {
        const std::string group = start_group(i);
        if (!hdf5::exists(provenance, group)) record.starts[i].provenance = i == 0 ? record.provenance : Attributes{};
        else record.starts[i].provenance = hdf5::read_properties(hdf5::open_group(provenance, group), provenance_texts);
    }
}

}  // namespace

std::string run_id_in(const std::string& folder) {
    const hdf5::Guard guard;
    try {
        const std::string image = read_file(folder + "/run.h5");
        const Handle open = hdf5::open_file(image);
        return text_attribute(hdf5::open_group(open, "/"), "run_id");
    } catch (const Error&) {
        return "";
    } catch (const hdf5::Failure&) {
        return "";
    }
}

RunRecord read_run(const std::string& file, RunParts parts) {
    // One open and one read of the whole file: a writer that replaces it meanwhile, or a missing lock service, cannot disturb.
    const std::string image = read_file(file);
    RunRecord record;
    const hdf5::Guard guard;
    try {
        const Handle open = hdf5::open_file(image);
        const Handle root = hdf5::open_group(open, "/");
        check_format(root, file, record);
        record.run_id = text_attribute(root, "run_id");
        record.sweep_id = text_attribute(root, "sweep_id");
        record.title = text_attribute(root, "title");
        record.status = text_attribute(root, "status");
        read_results(root, record);
        if (parts.log) read_log(root, record);
        if (parts.slices || parts.answers) read_eval(root, record, parts.answers);
        if (parts.origin) read_origin(root, record);
    } catch (const hdf5::Failure& failure) {
        throw DamagedRun(fmt::format("'{}' is damaged: {}", file, failure.what()));
    }
    return record;
}

double class_rate(const RunRecord& record, std::size_t row, std::int64_t split, std::size_t answer_class) {
    const std::size_t slices = record.slices.size(), classes = record.answer_classes.size();
    PALIMPSEST_ASSERT(row < record.eval_step.size() && answer_class < classes, "row {} of {}, class {} of {}", row,
                      record.eval_step.size(), answer_class, classes);
    std::int64_t hits = 0, all = 0;
    for (std::size_t slice = 0; slice < slices; ++slice) {
        if (record.slices[slice].split != split) continue;
        const std::int64_t* counts = &record.answers[(row * slices + slice) * classes];
        hits += counts[answer_class];
        for (std::size_t c = 0; c < classes; ++c) all += counts[c];
    }
    return all == 0 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(hits) / static_cast<double>(all);
}

// The first class is `correct`.
double accuracy(const RunRecord& record, std::size_t row, std::int64_t split) { return class_rate(record, row, split, 0); }

std::string hdf5_version() {
    const hdf5::Guard guard;
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    const std::string library = fmt::format("{}.{}.{}", major, minor, release);
    const std::string header = fmt::format("{}.{}.{}", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
    return library == header ? library : fmt::format("{} (compiled with the header of {})", library, header);
}

}  // namespace palimpsest
