// All objects of a run's file, made at the start.
#include "store/run_layout.h"

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "core/time.h"
#include "store/hdf5.h"

#include <algorithm>
#include <filesystem>

namespace palimpsest {

void check_metric_name(const std::string& name) {
    const bool good = !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos &&
                      (name[0] < '0' || name[0] > '9');
    PALIMPSEST_ASSERT(good, "'{}' is no metric name: lower case letters, digits, underscore", name);
}

namespace {

using hdf5::Handle;
using hdf5::Type;

// A column over an extensible index.
void create_column(hid_t group, const std::string& name, Type type, hid_t scale, const std::string& units,
                   const std::string& long_name) {
    const Handle column = hdf5::create_dataset(group, name, type, {{0}, true}, units, long_name);
    hdf5::mark_fill(column);
    hdf5::attach_scale(column, 0, scale);
}

Handle create_index(hid_t group, const std::string& name, const std::string& units, const std::string& long_name) {
    Handle scale = hdf5::create_dataset(group, name, Type::i8, {{0}, true}, units, long_name);
    hdf5::make_scale(scale, name);
    return scale;
}

// The axis of a fixed table: its labels are the coordinate.
Handle create_labels(hid_t group, const std::string& name, const std::vector<std::string>& labels, const std::string& long_name) {
    Handle scale = hdf5::create_dataset(group, name, Type::text, {{labels.size()}, false}, "", long_name);
    hdf5::write_rows(scale, 0, labels);
    hdf5::make_scale(scale, name);
    return scale;
}

void plottable(hid_t group, const std::string& signal, const std::vector<std::string>& axes) {
    hdf5::write_attribute(group, "NX_class", std::string("NXdata"));
    hdf5::write_attribute(group, "signal", signal);
    if (axes.size() == 1) hdf5::write_attribute(group, "axes", axes[0]);
    else hdf5::write_attribute(group, "axes", axes);
}

void create_train(hid_t file, const std::vector<Metric>& metrics) {
    const Handle group = hdf5::create_group(file, "train");
    const Handle step = create_index(group, "step", "1", "optimizer step");
    std::vector<std::string> others;
    for (const Metric& metric : metrics) {
        check_metric_name(metric.name);
        create_column(group, metric.name, Type::f4, step, metric.units, metric.long_name);
        others.push_back(metric.name);
    }
    if (others.empty()) return;
    auto signal = std::find(others.begin(), others.end(), "loss");
    if (signal == others.end()) signal = others.begin();
    plottable(group, *signal, {"step"});
    others.erase(signal);
    if (!others.empty()) hdf5::write_attribute(group, "auxiliary_signals", others);
}

void create_eval(hid_t file, const RunHeader& header) {
    const Handle group = hdf5::create_group(file, "eval");
    const Handle step = create_index(group, "eval_step", "1", "optimizer step of an evaluation");
    const hsize_t slices = header.slices.size(), classes = header.answer_classes.size(), policies = header.policies.size();
    if (slices == 0) return;
    PALIMPSEST_ASSERT(classes > 0, "{} slices but no answer classes", slices);

    const Handle slice = hdf5::create_dataset(group, "slice", Type::i8, {{slices}, false}, "1", "row of the table of slices");
    std::vector<std::int64_t> index;
    std::vector<std::string> labels;
    for (const Slice& s : header.slices) {
        index.push_back(static_cast<std::int64_t>(index.size()));
        labels.push_back(s.label);
    }
    hdf5::write_rows(slice, 0, index);
    hdf5::make_scale(slice, "slice");
    const auto coordinate = [&](const std::string& name, std::int64_t Slice::*member, const std::string& long_name) {
        const Handle column = hdf5::create_dataset(group, name, Type::i8, {{slices}, false}, "1", long_name);
        std::vector<std::int64_t> values;
        for (const Slice& s : header.slices) values.push_back(s.*member);
        hdf5::write_rows(column, 0, values);
        hdf5::attach_scale(column, 0, slice);
    };
    coordinate("slice_split", &Slice::split, "0 valid, 1 test");
    coordinate("slice_segment", &Slice::segment, "index in the split's list of segments");
    coordinate("slice_overwrites", &Slice::overwrites, "overwrites of the key before it is read");
    coordinate("slice_distance_from", &Slice::distance_from, "least distance from last write to read, in tokens");
    coordinate("slice_distance_to", &Slice::distance_to, "greatest distance from last write to read, in tokens");
    const Handle label = hdf5::create_dataset(group, "slice_label", Type::text, {{slices}, false}, "", "slice in words");
    hdf5::write_rows(label, 0, labels);
    hdf5::attach_scale(label, 0, slice);

    const Handle answer_class = create_labels(group, "answer_class", header.answer_classes, "kind of answer");
    const Handle answers =
        hdf5::create_dataset(group, "answers", Type::i8, {{0, slices, classes}, true}, "1", "answers by slice and kind");
    hdf5::attach_scale(answers, 0, step);
    hdf5::attach_scale(answers, 1, slice);
    hdf5::attach_scale(answers, 2, answer_class);
    const Handle loss =
        hdf5::create_dataset(group, "loss_sum", Type::f8, {{0, slices}, true}, "1", "sum of losses over the answers");
    hdf5::attach_scale(loss, 0, step);
    hdf5::attach_scale(loss, 1, slice);
    plottable(group, "loss_sum", {"eval_step", "slice"});

    if (policies == 0) return;
    const Handle policy = create_labels(group, "policy", header.policies, "shallow policy");
    const Handle scored = hdf5::create_dataset(group, "policy_answers", Type::i8, {{policies, slices, classes}, false}, "1",
                                               "answers of the shallow policies by slice and kind; -1 before they were scored");
    hdf5::mark_fill(scored);
    hdf5::attach_scale(scored, 0, policy);
    hdf5::attach_scale(scored, 1, slice);
    hdf5::attach_scale(scored, 2, answer_class);
}

void create_system(hid_t file) {
    const Handle group = hdf5::create_group(file, "system");
    const Handle step = create_index(group, "time_step", "1", "optimizer step of a measurement");
    create_column(group, "seconds", Type::f8, step, "s", "time since this start of the run");
    create_column(group, "tokens_per_second", Type::f4, step, "s-1", "training tokens a second");
    create_column(group, "gpu_bytes_peak", Type::i8, step, "byte", "peak memory on the device");
    plottable(group, "tokens_per_second", {"time_step"});
}

void create_config(hid_t file, const RunHeader& header) {
    const Handle group = hdf5::create_group(file, "config");
    hdf5::create_text(group, "resolved_yaml", header.resolved_yaml, "every key, with defaults");
    hdf5::create_text(group, "source_yaml", header.source_yaml, "as the user wrote it");
    // Its own scale, so that a list of any length has a named axis. No overrides: an axis of length 0.
    const Handle overrides = hdf5::create_dataset(
        group, "overrides", Type::text, {{header.overrides.size()}, header.overrides.empty()}, "", "key=value of the command line");
    hdf5::write_rows(overrides, 0, header.overrides);
    hdf5::make_scale(overrides, "overrides");
    hdf5::write_properties(group, header.config);
}

void create_seconds(hid_t starts, hid_t index) {
    create_column(starts, "seconds", Type::f8, index, "s", "time that the start took; of one that was killed, up to its last row");
}

void create_starts(hid_t file) {
    const Handle group = hdf5::create_group(file, "starts");
    const Handle index = create_index(group, "start", "1", "start or resumption of the run");
    create_column(group, "host", Type::text, index, "", "host name");
    create_column(group, "device", Type::text, index, "", "device");
    create_column(group, "started", Type::text, index, "", "time, UTC");
    create_column(group, "from_step", Type::i8, index, "1", "steps done before");
    create_column(group, "to_step", Type::i8, index, "1", "last step done; -1 while it runs");
    create_column(group, "ended", Type::text, index, "", "time, UTC; empty while it runs");
    create_column(group, "reason", Type::text, index, "", "why it ended; empty while it runs");
    create_seconds(group, index);
}

void create_artifacts(hid_t file) {
    const Handle group = hdf5::create_group(file, "artifacts");
    const Handle index = create_index(group, "artifact", "1", "file beside this one");
    create_column(group, "path", Type::text, index, "", "path from the run's folder");
    create_column(group, "bytes", Type::i8, index, "byte", "size");
    create_column(group, "sha256", Type::text, index, "", "SHA-256 of the content");
}

std::string words_of(const Slice& slice) {
    return fmt::format("{} segment {}, {} overwrites, distance {}..{}", slice.split == 0 ? "valid" : "test", slice.segment,
                       slice.overwrites, slice.distance_from, slice.distance_to);
}

}  // namespace

void publish(hid_t file, const std::string& path) {
    const std::string bytes = hdf5::image(file);
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

Handle create_run_layout(const RunHeader& header) {
    Handle file = hdf5::create_file();
    const Handle root = hdf5::open_group(file, "/");
    const std::pair<const char*, std::string> attributes[] = {
        {"format", run_format},    {"format_version", format_version}, {"Conventions", conventions}, {"title", header.title},
        {"run_id", header.run_id}, {"sweep_id", header.sweep_id},      {"created", now_utc()},       {"NX_class", "NXroot"},
        {"default", "train"},
    };
    for (const auto& [name, value] : attributes) hdf5::write_attribute(root, name, value);
    create_train(root, header.train_metrics);
    create_eval(root, header);
    create_system(root);
    hdf5::create_group(root, "summary");
    create_config(root, header);
    const Handle provenance = hdf5::create_group(root, "provenance");
    hdf5::write_properties(provenance, header.provenance);
    hdf5::create_text(provenance, "git_diff", header.git_diff, "uncommitted changes of the source tree");
    create_starts(root);
    create_artifacts(root);
    return file;
}

void complete_layout(hid_t file) {
    hdf5::write_attribute(hdf5::open_group(file, "/"), "format_version", std::string(format_version));
    const Handle starts = hdf5::open_group(file, "starts"), index = hdf5::open_dataset(starts, "start");
    if (hdf5::exists(starts, "seconds")) return;
    create_seconds(starts, index);
    hdf5::resize_rows(hdf5::open_dataset(starts, "seconds"), hdf5::shape(index)[0]);
}

void check_layout(const RunHeader& header, const RunRecord& record, const std::vector<std::string>& metrics,
                  const std::string& path) {
    std::vector<std::string> differences, here;
    const auto compare = [&](const char* what, const std::vector<std::string>& in_file, const std::vector<std::string>& wanted) {
        const auto listed = [](const std::vector<std::string>& names) { return names.empty() ? "none" : join(names, ", "); };
        if (in_file != wanted) differences.push_back(fmt::format("{}: there {}; here {}", what, listed(in_file), listed(wanted)));
    };
    for (const Metric& metric : header.train_metrics) here.push_back(metric.name);
    compare("columns of the training log", metrics, here);
    compare("kinds of answers", record.answer_classes, header.slices.empty() ? std::vector<std::string>{} : header.answer_classes);
    // A file has none of them where they were not scored.
    if (!record.policy_names.empty())
        compare("shallow policies", record.policy_names, header.slices.empty() ? std::vector<std::string>{} : header.policies);
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
    const auto fact = [&](const char* name) {
        for (const auto& [key, value] : record.provenance)
            if (const auto* text = std::get_if<std::string>(&value); key == name && text) return *text;
        return std::string("unknown");
    };
    fail(ExitCode::run_failed,
         "'{}' was begun by another version of this program (version {}, commit {}), and cannot be gone on with:\n  {}\n"
         "Go on with that version, or remove the folder to train the run from the beginning",
         path, fact("version"), fact("commit"), join(differences, "\n  "));
}

void write_start(hid_t file, std::size_t row, const RunStart& start) {
    const Handle provenance = hdf5::open_group(file, "provenance");
    std::string before;
    const auto changes_of = [&](hid_t group) {
        if (hdf5::exists(group, "git_diff")) before = hdf5::read_texts(hdf5::open_dataset(group, "git_diff")).at(0);
    };
    changes_of(provenance);
    for (std::size_t earlier = 0; earlier < row; ++earlier)
        if (hdf5::exists(provenance, start_group(earlier))) changes_of(hdf5::open_group(provenance, start_group(earlier)));
    const Handle group = hdf5::create_group(provenance, start_group(row));
    hdf5::write_properties(group, start.provenance);
    if (start.git_diff != before) hdf5::create_text(group, "git_diff", start.git_diff, "uncommitted changes of the source tree");
}

}  // namespace palimpsest
