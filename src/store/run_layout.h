// The objects of run.h5, which its writer and its reader agree on. docs/results_format.md has the whole layout.
#pragma once

#include "store/run_record.h"

#include <cstddef>
#include <string>

namespace palimpsest {

inline constexpr const char* format_version = "1.1";  // minor: additions; major: readers must refuse
inline constexpr const char* run_format = "palimpsest-run";
inline constexpr const char* conventions = "CF-1.8";

// Lower case letters, digits, underscore: an identifier in every reader's language.
void check_metric_name(const std::string& name);

// The bytes of a run's file that holds this record. Throws hdf5::Failure.
std::string run_image(const RunRecord& record);

// A file whose columns and tables are others than this version writes cannot be gone on with: its rows would be a mixture of both.
// Nor can one of a later minor version, of which something might be lost. Throws Error(run_failed), which lists the differences.
void check_layout(const RunHeader& header, const RunRecord& record, const std::string& path);

// Columns of the small tables, which writer and reader go through: name, member, unit, what it is.
template <class F>
void for_columns(const Slice*, const F& column) {
    column("slice_split", &Slice::split, "1", "0 valid, 1 test");
    column("slice_segment", &Slice::segment, "1", "index in the split's list of segments");
    column("slice_overwrites", &Slice::overwrites, "1", "overwrites of the key before it is read");
    column("slice_distance_from", &Slice::distance_from, "1", "least distance from last write to read, in tokens");
    column("slice_distance_to", &Slice::distance_to, "1", "greatest distance from last write to read, in tokens");
    column("slice_label", &Slice::label, "", "slice in words");
}

template <class F>
void for_columns(const SystemRow*, const F& column) {
    column("seconds", &SystemRow::seconds, "s", "time since this start of the run");
    column("tokens_per_second", &SystemRow::tokens_per_second, "s-1", "training tokens a second");
    column("gpu_bytes_peak", &SystemRow::gpu_bytes_peak, "byte", "peak memory on the device");
}

template <class F>
void for_columns(const RunStart*, const F& column) {
    column("host", &RunStart::host, "", "host name");
    column("device", &RunStart::device, "", "device");
    column("started", &RunStart::started, "", "time, UTC");
    column("from_step", &RunStart::from_step, "1", "steps done before");
    column("to_step", &RunStart::to_step, "1", "last step done; -1 while it runs");
    column("ended", &RunStart::ended, "", "time, UTC; empty while it runs");
    column("reason", &RunStart::reason, "", "why it ended; empty while it runs");
    column("seconds", &RunStart::seconds, "s", "time that the start took; of one that was killed, up to its last row");
}

template <class F>
void for_columns(const Artifact*, const F& column) {
    column("path", &Artifact::path, "", "path from the run's folder");
    column("bytes", &Artifact::bytes, "byte", "size");
    column("sha256", &Artifact::sha256, "", "SHA-256 of the content");
}

// The group in /provenance that says what made the start in this row of /starts. A file's first start has none: it is told by
// /provenance.
inline std::string start_group(std::size_t row) { return "start_" + std::to_string(row); }

// Puts a file on the disk under `path`, whole or not at all. Error(run_failed) names the path and the free space.
void publish(const std::string& bytes, const std::string& path);

}  // namespace palimpsest
