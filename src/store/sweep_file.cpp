#include "store/sweep_file.h"

#include "core/error.h"
#include "core/text.h"
#include "core/time.h"
#include "store/hdf5.h"
#include "store/run_layout.h"
#include "store/run_reader.h"
#include "store/runs.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <type_traits>

namespace palimpsest {
namespace {

using hdf5::Handle;

constexpr const char *sweep_format = "palimpsest-sweep", *sweep_format_version = "1.0";
// Swept keys in order of expansion, then whatever else differs between the runs, sorted.
std::vector<std::string> columns_of(const std::vector<CollectedRun>& runs) {
    std::vector<SweepRun> planned;
    for (const CollectedRun& run : runs) planned.push_back({run.run.run_id, run.run.folder, run.run.varied});
    std::vector<std::string> keys = swept_keys(planned);
    std::set<std::string> others;
    for (const VaryingKey& varying : varying_keys(runs)) others.insert(varying.key);
    for (const std::string& key : keys) others.erase(key);
    keys.insert(keys.end(), others.begin(), others.end());
    return keys;
}

// Readers that do not inherit the axes of an outer group find the labels in each.
Handle write_run_ids(hid_t group, const std::vector<std::string>& ids) {
    return hdf5::write_axis(group, "run_id", ids, {"", "id of the run"});
}

// The narrowest type that holds every run's value: i8 if all are integers, f8 if all are numbers, else text.
void write_config_column(hid_t group, const std::string& key, const std::vector<CollectedRun>& runs, hid_t scale) {
    std::vector<std::optional<Attribute>> values;
    for (const CollectedRun& run : runs) values.push_back(value_under(run, key));
    const auto all = [&](const auto& holds) { return std::all_of(values.begin(), values.end(), holds); };
    const auto write = [&]<class T>(const T& missing, bool gaps) {
        std::vector<T> column;
        for (const auto& value : values) {
            column.push_back(missing);
            if (!value) continue;
            if constexpr (std::is_same_v<T, std::string>) column.back() = in_words(*value);
            else if (const auto* integer = std::get_if<std::int64_t>(&*value)) column.back() = static_cast<T>(*integer);
            else column.back() = static_cast<T>(std::get<double>(*value));
        }
        hdf5::write_column(group, key, column, {scale}, {.gaps = gaps});
    };
    if (all([](const auto& v) { return v && std::holds_alternative<std::int64_t>(*v); })) write(std::int64_t{0}, false);
    else if (all([](const auto& v) { return !v || !std::holds_alternative<std::string>(*v); })) write(not_a_number, true);
    else write(std::string(), false);
}

void write_runs(hid_t file, const std::string& folder, const std::vector<CollectedRun>& runs) {
    std::vector<std::string> ids, folders, problems;
    std::vector<std::int8_t> states, codes;
    std::vector<std::uint8_t> present;
    for (const CollectedRun& run : runs) {
        ids.push_back(run.run.run_id);
        folders.push_back(std::filesystem::proximate(run.run.folder, folder).string());
        problems.push_back(run.problem);
        states.push_back(static_cast<std::int8_t>(run.state));
        present.push_back(run.present ? 1 : 0);
    }
    const Handle group = hdf5::create_group(file, "runs");
    const Handle scale = write_run_ids(group, ids);
    const Handle status = hdf5::write_column(group, "status_code", states, {scale}, {"", "state of the run"});
    for (std::size_t code = 0; code < std::size(state_names); ++code) codes.push_back(static_cast<std::int8_t>(code));
    hdf5::write_attribute(status, "flag_values", codes);
    hdf5::write_attribute(status, "flag_meanings", join({std::begin(state_names), std::end(state_names)}, " "));
    hdf5::write_column(group, "present", present, {scale}, {"", "1: the run's file was found and readable"});
    hdf5::write_column(group, "folder", folders, {scale}, {"", "folder of the run, seen from this file"});
    hdf5::write_column(group, "problem", problems, {scale}, {"", "why the run's file could not be read"});

    const Handle config = hdf5::create_group(group, "config");
    const Handle config_scale = write_run_ids(config, ids);
    for (const std::string& key : columns_of(runs)) {
        if (key != "run_id") write_config_column(config, key, runs, config_scale);
    }
    const Handle summary = hdf5::create_group(group, "summary");
    const Handle summary_scale = write_run_ids(summary, ids);
    for (const std::string& name : summary_names(runs)) {
        std::vector<double> column;
        for (const CollectedRun& run : runs) column.push_back(summary_value(run.record, name));
        hdf5::write_column(summary, name, column, {summary_scale}, {.gaps = true});
    }
}

}  // namespace

void write_sweep_file(const std::string& folder, const std::string& sweep_id, const std::string& manifest_yaml,
                      const std::vector<CollectedRun>& runs) {
    const std::string path = folder + "/sweep.h5";
    const hdf5::Guard guard;
    try {
        const Handle file = hdf5::create_file();
        const Handle root = hdf5::open_group(file, "/");
        const std::pair<const char*, std::string> attributes[] = {
            {"format", sweep_format},     {"format_version", sweep_format_version},
            {"Conventions", conventions}, {"title", sweep_id},
            {"sweep_id", sweep_id},       {"created", now_utc()}};
        for (const auto& [name, value] : attributes) hdf5::write_attribute(root, name, value);
        write_runs(root, folder, runs);
        hdf5::write_scalar(hdf5::create_group(root, "manifest"), "yaml", manifest_yaml,
                           {"", "the plan of the sweep, frozen at its start"});
        publish(hdf5::image(file), path);
    } catch (const hdf5::Failure& failure) {
        fail(ExitCode::run_failed, "cannot write '{}': {}", path, failure.what());
    }
}

}  // namespace palimpsest
