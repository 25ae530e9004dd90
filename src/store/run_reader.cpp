#include "store/run_reader.h"

#include "core/error.h"
#include "core/file.h"
#include "store/hdf5.h"
#include "store/run_layout.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

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

// A whole column, or its first rows: of a file that is whole it has no more.
template <class T>
std::vector<T> column(hid_t group, const std::string& name) {
    return hdf5::read<T>(hdf5::open_dataset(group, name));
}
template <class T>
std::vector<T> column(hid_t group, const std::string& name, std::size_t rows) {
    std::vector<T> values = column<T>(group, name);
    if (values.size() < rows) throw hdf5::Failure(fmt::format("column '{}' is shorter than its index", name));
    values.resize(rows);
    return values;
}

// As many rows as the table's axis has. A column that is not there is one of a later minor version.
template <class Row>
std::vector<std::int64_t> read_table(hid_t group, const std::string& axis, std::vector<Row>& rows) {
    std::vector<std::int64_t> index = column<std::int64_t>(group, axis);
    rows.resize(index.size());
    for_columns(static_cast<const Row*>(nullptr), [&](const char* name, auto Row::*member, auto...) {
        if (!hdf5::exists(group, name)) return;
        auto values = column<std::decay_t<decltype(rows[0].*member)>>(group, name, rows.size());
        for (std::size_t i = 0; i < rows.size(); ++i) rows[i].*member = std::move(values[i]);
    });
    return index;
}

void read_log(hid_t root, RunRecord& record) {
    const std::vector<std::int64_t> steps = read_table(hdf5::open_group(root, "system"), "time_step", record.system);
    for (std::size_t i = 0; i < steps.size(); ++i) record.system[i].step = steps[i];
    const Handle group = hdf5::open_group(root, "train");
    record.step = column<std::int64_t>(group, "step");
    for (const std::string& name : hdf5::children(group)) {
        if (name == "step") continue;
        const Handle dataset = hdf5::open_dataset(group, name);
        record.train.emplace(name, column<float>(group, name, record.step.size()));
        record.train_metrics.push_back({name, text_attribute(dataset, "units"), text_attribute(dataset, "long_name")});
    }
}

void read_eval(hid_t root, RunRecord& record, bool with_answers) {
    const Handle group = hdf5::open_group(root, "eval");
    if (with_answers) record.eval_step = column<std::int64_t>(group, "eval_step");
    if (!hdf5::exists(group, "slice")) return;
    read_table(group, "slice", record.slices);
    record.answer_classes = column<std::string>(group, "answer_class");
    if (hdf5::exists(group, "policy")) {
        record.policies = column<std::string>(group, "policy");
        const std::size_t cells = record.policies.size() * record.slices.size() * record.answer_classes.size();
        std::vector<std::int64_t> scored = column<std::int64_t>(group, "policy_answers", cells);
        if (std::any_of(scored.begin(), scored.end(), [](std::int64_t count) { return count >= 0; }))
            record.policy_names = record.policies;
        if (with_answers && !record.policy_names.empty()) record.policy_answers = std::move(scored);
    }
    if (!with_answers) return;
    const std::size_t cells = record.eval_step.size() * record.slices.size();
    record.answers = column<std::int64_t>(group, "answers", cells * record.answer_classes.size());
    record.loss_sum = column<double>(group, "loss_sum", cells);
}

void read_results(hid_t root, RunRecord& record) {
    const Handle summary = hdf5::open_group(root, "summary");
    for (const std::string& name : hdf5::children(summary)) {
        const std::vector<double> value = column<double>(summary, name);
        if (value.size() == 1) record.summary.emplace(name, value[0]);
    }
    record.summary_attributes = hdf5::read_attributes(summary);

    constexpr std::array<std::string_view, 3> config_texts = {"resolved_yaml", "source_yaml", "overrides"};
    record.config = hdf5::read_properties(hdf5::open_group(root, "config"), config_texts);
}

void read_origin(hid_t root, RunRecord& record) {
    const Handle config = hdf5::open_group(root, "config"), provenance = hdf5::open_group(root, "provenance");
    const auto text = [](hid_t group, const std::string& name) { return column<std::string>(group, name, 1)[0]; };
    record.resolved_yaml = text(config, "resolved_yaml");
    record.source_yaml = text(config, "source_yaml");
    record.overrides = column<std::string>(config, "overrides");
    constexpr std::array<std::string_view, 1> provenance_texts = {"git_diff"};
    record.provenance = hdf5::read_properties(provenance, provenance_texts);
    record.git_diff = text(provenance, "git_diff");

    read_table(hdf5::open_group(root, "starts"), "start", record.starts);
    for (std::size_t i = 0; i < record.starts.size(); ++i) {
        RunStart& start = record.starts[i];
        start.git_diff = i == 0 ? record.git_diff : record.starts[i - 1].git_diff;
        if (i == 0) start.provenance = record.provenance;
        if (!hdf5::exists(provenance, start_group(i))) continue;
        const Handle group = hdf5::open_group(provenance, start_group(i));
        start.provenance = hdf5::read_properties(group, provenance_texts);
        if (hdf5::exists(group, "git_diff")) start.git_diff = text(group, "git_diff");
    }
    read_table(hdf5::open_group(root, "artifacts"), "artifact", record.artifacts);
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
        record.created = text_attribute(root, "created");
        record.finished = text_attribute(root, "finished");
        read_results(root, record);
        if (parts.log) read_log(root, record);
        if (parts.slices || parts.answers) read_eval(root, record, parts.answers);
        if (parts.origin) read_origin(root, record);
    } catch (const hdf5::Failure& failure) {
        throw DamagedRun(fmt::format("'{}' is damaged: {}", file, failure.what()));
    }
    return record;
}

double summary_value(const RunRecord& record, const std::string& name) {
    const auto found = record.summary.find(name);
    return found == record.summary.end() ? not_a_number : found->second;
}

std::string hdf5_version() {
    const hdf5::Guard guard;
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    const std::string library = fmt::format("{}.{}.{}", major, minor, release);
    const std::string header = fmt::format("{}.{}.{}", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
    return library == header ? library : fmt::format("{} (compiled with the header of {})", library, header);
}

}  // namespace palimpsest
