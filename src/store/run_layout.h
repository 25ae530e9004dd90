// The objects of run.h5, which its writer and its reader agree on. docs/results_format.md has the whole layout.
#pragma once

#include "store/hdf5.h"
#include "store/run_record.h"

#include <string>
#include <vector>

namespace palimpsest {

inline constexpr const char* format_version = "1.1";  // minor: additions; major: readers must refuse
inline constexpr const char* run_format = "palimpsest-run";
inline constexpr const char* conventions = "CF-1.8";

// Lower case letters, digits, underscore: an identifier in every reader's language.
void check_metric_name(const std::string& name);

// A new run file in memory with every dataset of the layout, still without rows.
hdf5::Handle create_run_layout(const RunHeader& header);

// Adds what a file of an older minor version lacks, and makes it one of this version.
void complete_layout(hid_t file);

// A file whose columns and tables are others than this version writes cannot be gone on with: its rows would be a mixture of both.
// `metrics`: the columns of its training log, in their order.
void check_layout(const RunHeader& header, const RunRecord& record, const std::vector<std::string>& metrics,
                  const std::string& path);

// Writes down what goes on with a run, beside what began it; changes of the code only where they are not those of the start before.
void write_start(hid_t file, std::size_t row, const RunStart& start);

// The group in /provenance that says what made the start in this row of /starts. A file's first start has none: it is told by
// /provenance.
inline std::string start_group(std::size_t row) { return "start_" + std::to_string(row); }

// Puts the file on the disk under `path`, whole or not at all. Error(run_failed) names the path and the free space.
void publish(hid_t file, const std::string& path);

}  // namespace palimpsest
