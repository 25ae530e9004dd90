// What writers and readers of our HDF5 files agree on. docs/results_format.md has the whole layout.
#pragma once

#include "store/hdf5.h"
#include "store/run_folder.h"

#include <string>
#include <string_view>

namespace palimpsest {

inline constexpr const char* format_version = "1.0";  // minor: additions; major: readers must refuse
inline constexpr const char* run_format = "palimpsest-run";
inline constexpr const char* sweep_format = "palimpsest-sweep";
inline constexpr const char* conventions = "CF-1.8";

// The states of run_folder.h, in order of their codes. Persisted: do not renumber.
inline constexpr std::string_view state_names[] = {"fresh", "running", "finished", "failed", "interrupted", "lost"};

// "2026-05-09T10:20:30Z"
std::string utc_now();

// Lower case letters, digits, underscore: an identifier in every reader's language.
void check_metric_name(const std::string& name);

// A new run file in memory with every dataset of the layout, still without rows.
hdf5::Handle create_run_layout(const RunHeader& header);

// Publishes a file image under `path`, whole or not at all; errors name the path and the free space.
void publish(const std::string& path, const std::string& image);

}  // namespace palimpsest
