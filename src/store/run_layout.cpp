// All objects of a run's file.
#include "store/run_layout.h"

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "store/hdf5.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <type_traits>

namespace palimpsest {

void check_metric_name(const std::string& name) {
    const bool good = !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos &&
                      (name[0] < '0' || name[0] > '9');
    PALIMPSEST_ASSERT(good, "'{}' is no metric name: lower case letters, digits, underscore", name);
}

namespace {

using hdf5::Handle;

std::vector<std::int64_t> counted(std::size_t rows) {
    std::vector<std::int64_t> index(rows);
    std::iota(index.begin(), index.end(), 0);
    return index;
}

template <class Row>
void write_columns(hid_t group, hid_t axis, const std::vector<Row>& rows, bool grows = true) {
    for_columns(static_cast<const Row*>(nullptr), [&](const char* name, auto Row::*member, const char* units, const char* words) {
        std::vector<std::decay_t<decltype(rows[0].*member)>> values;
        for (const Row& row : rows) values.push_back(row.*member);
        hdf5::write_column(group, name, values, {axis}, {units, words, grows, grows});
    });
}

// A table without an axis of its own kind: its rows are counted.
template <class Row>
void write_table(hid_t file, const std::string& name, const std::string& axis, const char* words, const std::vector<Row>& rows) {
    const Handle group = hdf5::create_group(file, name);
    write_columns(group, hdf5::write_axis(group, axis, counted(rows.size()), {"1", words, true}), rows);
}

void plottable(hid_t group, const std::string& signal, const std::vector<std::string>& axes) {
    hdf5::write_attribute(group, "NX_class", std::string("NXdata"));
    hdf5::write_attribute(group, "signal", signal);
    if (axes.size() == 1) hdf5::write_attribute(group, "axes", axes[0]);
    else hdf5::write_attribute(group, "axes", axes);
}

void write_train(hid_t file, const RunRecord& record) {
    const Handle group = hdf5::create_group(file, "train");
    const Handle step = hdf5::write_axis(group, "step", record.step, {"1", "optimizer step", true});
    std::vector<std::string> others;
    for (const Metric& metric : record.train_metrics) {
        hdf5::write_column(group, metric.name, record.train.at(metric.name), {step}, {metric.units, metric.long_name, true, true});
        others.push_back(metric.name);
    }
    if (others.empty()) return;
    auto signal = std::find(others.begin(), others.end(), "loss");
    if (signal == others.end()) signal = others.begin();
    plottable(group, *signal, {"step"});
    others.erase(signal);
    if (!others.empty()) hdf5::write_attribute(group, "auxiliary_signals", others);
}

void write_eval(hid_t file, const RunRecord& record) {
    const Handle group = hdf5::create_group(file, "eval");
    const Handle step = hdf5::write_axis(group, "eval_step", record.eval_step, {"1", "optimizer step of an evaluation", true});
    const std::size_t slices = record.slices.size(), classes = record.answer_classes.size(), policies = record.policies.size();
    if (slices == 0) return;
    PALIMPSEST_ASSERT(classes > 0, "{} slices but no answer classes", slices);

    const Handle slice = hdf5::write_axis(group, "slice", counted(slices), {"1", "row of the table of slices"});
    write_columns(group, slice, record.slices, false);
    const Handle answer_class = hdf5::write_axis(group, "answer_class", record.answer_classes, {"", "kind of answer"});
    hdf5::write_column(group, "answers", record.answers, {step, slice, answer_class}, {"1", "answers by slice and kind", true});
    hdf5::write_column(group, "loss_sum", record.loss_sum, {step, slice}, {"1", "sum of losses over the answers", true});
    plottable(group, "loss_sum", {"eval_step", "slice"});

    if (policies == 0) return;
    const Handle policy = hdf5::write_axis(group, "policy", record.policies, {"", "shallow policy"});
    std::vector<std::int64_t> scored = record.policy_answers;
    scored.resize(policies * slices * classes, -1);
    hdf5::write_column(group, "policy_answers", scored, {policy, slice, answer_class},
                       {"1", "answers of the shallow policies by slice and kind; -1 before they were scored", false, true});
}

void write_system(hid_t file, const RunRecord& record) {
    const Handle group = hdf5::create_group(file, "system");
    std::vector<std::int64_t> steps;
    for (const SystemRow& row : record.system) steps.push_back(row.step);
    const Handle step = hdf5::write_axis(group, "time_step", steps, {"1", "optimizer step of a measurement", true});
    write_columns(group, step, record.system);
    plottable(group, "tokens_per_second", {"time_step"});
}

// Units of what /summary holds; of all else "1".
constexpr std::pair<std::string_view, const char*> summary_units[] = {
    {"seconds", "s"}, {"state_bytes", "byte"}, {"tokens_per_second", "s-1"}};

void write_summary(hid_t file, const RunRecord& record) {
    const Handle group = hdf5::create_group(file, "summary");
    for (const auto& [name, value] : record.summary) {
        check_metric_name(name);
        const char* unit = "1";
        for (const auto& [known, its_unit] : summary_units)
            if (known == name) unit = its_unit;
        hdf5::write_scalar(group, name, value, {unit});
    }
    for (const auto& [name, value] : record.summary_attributes) hdf5::write_attribute(group, name, value);
}

void write_config(hid_t file, const RunRecord& record) {
    const Handle group = hdf5::create_group(file, "config");
    hdf5::write_scalar(group, "resolved_yaml", record.resolved_yaml, {"", "every key, with defaults"});
    hdf5::write_scalar(group, "source_yaml", record.source_yaml, {"", "as the user wrote it"});
    // Its own scale, so that a list of any length has a named axis. No overrides: an axis of length 0.
    hdf5::write_axis(group, "overrides", record.overrides, {"", "key=value of the command line"});
    hdf5::write_properties(group, record.config);
}

// What began the run, and what went on with it; changes of the code only where they are not those of the start before.
void write_provenance(hid_t file, const RunRecord& record) {
    const hdf5::About changes = {"", "uncommitted changes of the source tree"};
    const Handle group = hdf5::create_group(file, "provenance");
    hdf5::write_properties(group, record.provenance);
    hdf5::write_scalar(group, "git_diff", record.git_diff, changes);
    for (std::size_t row = 0; row < record.starts.size(); ++row) {
        const RunStart& start = record.starts[row];
        const std::string& before = row == 0 ? record.git_diff : record.starts[row - 1].git_diff;
        if (start.provenance == (row == 0 ? record.provenance : Attributes{}) && start.git_diff == before) continue;
        const Handle own = hdf5::create_group(group, start_group(row));
        hdf5::write_properties(own, start.provenance);
        if (start.git_diff != before) hdf5::write_scalar(own, "git_diff", start.git_diff, changes);
    }
}

std::string words_of(const Slice& slice) {
    return fmt::format("{} segment {}, {} overwrites, distance {}..{}", slice.split == 0 ? "valid" : "test", slice.segment,
                       slice.overwrites, slice.distance_from, slice.distance_to);
}

}  // namespace

void publish(const std::string& bytes, const std::string& path) {
    try {
        write_file_atomic(path, bytes);
    } catch (const Error& error) {
        const std::string folder = std::filesystem::absolute(path).parent_path().string();
        std::error_code unknown;
        const std::filesystem::space_info space = std::filesystem::space(folder, unknown);
        if (unknown) throw Error(ExitCode::run_failed, error.what());
        fail(ExitCode::run_failed, "{} ({} bytes free in '{}', {} needed)", error.what(), space.available, folder, bytes.size());
    }
}

std::string run_image(const RunRecord& record) {
    const hdf5::Guard guard;
    const Handle file = hdf5::create_file();
    const Handle root = hdf5::open_group(file, "/");
    const std::pair<const char*, std::string> attributes[] = {
        {"format", run_format},    {"format_version", format_version}, {"Conventions", conventions}, {"title", record.title},
        {"run_id", record.run_id}, {"sweep_id", record.sweep_id},      {"created", record.created},  {"NX_class", "NXroot"},
        {"default", "train"},
    };
    for (const auto& [name, value] : attributes) hdf5::write_attribute(root, name, value);
    if (!record.status.empty()) {
        const auto* code = std::find(std::begin(state_names), std::end(state_names), record.status);
        PALIMPSEST_ASSERT(code != std::end(state_names), "'{}' is no state of a run", record.status);
        hdf5::write_attribute(root, "status", record.status);
        hdf5::write_attribute(root, "status_code", std::int64_t{code - std::begin(state_names)});
        hdf5::write_attribute(root, "finished", record.finished);
    }
    write_train(root, record);
    write_eval(root, record);
    write_system(root, record);
    write_summary(root, record);
    write_config(root, record);
    write_provenance(root, record);
    write_table(root, "starts", "start", "start or resumption of the run", record.starts);
    write_table(root, "artifacts", "artifact", "file beside this one", record.artifacts);
    return hdf5::image(file);
}

void check_layout(const RunHeader& header, const RunRecord& record, const std::string& path) {
    const auto minor = [](const std::string& version) { return std::atoi(version.c_str() + version.find('.') + 1); };
    std::vector<std::string> differences;
    const auto compare = [&](const char* what, const std::vector<std::string>& in_file, const std::vector<std::string>& wanted) {
        const auto listed = [](const std::vector<std::string>& names) { return names.empty() ? "none" : join(names, ", "); };
        if (in_file != wanted) differences.push_back(fmt::format("{}: there {}; here {}", what, listed(in_file), listed(wanted)));
    };
    const auto columns = [](const RunHeader& of) {
        std::vector<std::string> names;
        for (const Metric& metric : of.train_metrics) names.push_back(metric.name);
        return names;
    };
    if (minor(record.format_version) > minor(format_version)) compare("format", {record.format_version}, {format_version});
    compare("columns of the training log", columns(record), columns(header));
    compare("kinds of answers", record.answer_classes, header.slices.empty() ? std::vector<std::string>{} : header.answer_classes);
    if (!record.policies.empty())  // older versions wrote none of them where they were not scored
        compare("shallow policies", record.policies, header.slices.empty() ? std::vector<std::string>{} : header.policies);
    const std::size_t there = record.slices.size(), wanted = header.slices.size();
    if (there != wanted) {
        differences.push_back(fmt::format("slices of the evaluation: there {}; here {}", there, wanted));
    } else {
        for (std::size_t s = 0; s < there; ++s) {
            if (words_of(record.slices[s]) == words_of(header.slices[s])) continue;
            differences.push_back(fmt::format("slice {} of the evaluation: there {}; here {}", s, words_of(record.slices[s]),
                                              words_of(header.slices[s])));
            break;
        }
    }
    if (differences.empty()) return;
    fail(ExitCode::run_failed,
         "'{}' was begun by another version of this program (version {}, commit {}), and cannot be gone on with:\n  {}\n"
         "Go on with that version, or remove the folder to train the run from the beginning",
         path, words_under(record.provenance, "version"), words_under(record.provenance, "commit"), join(differences, "\n  "));
}

}  // namespace palimpsest
