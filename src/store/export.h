// Tidy tables for other tools: one row a run, a (run, evaluation, segment), a (run, evaluation, slice), or a row of the training
// log. The columns that identify the run come first.
#pragma once

#include "store/collect.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

enum class ExportTable { summary, evals, slices, train };
enum class ExportFormat { csv, json };

// What the table needs of a run's file beside its config and its summary.
RunParts parts_of(ExportTable table);

// Text comes out through `write`, in pieces. Numbers are the shortest text that reads back to the same bits, as f4 or f8 as they
// were stored. What is not there, NaN included, is an empty field in csv and null in json; an infinite number is inf in csv, null
// in json. csv: RFC 4180 with \n. json: a list of objects, one a line. `read` gives a run's record with the parts of the table,
// once for the names of the columns and once for the rows, so that one record at a time is held. Returns the runs that have nothing
// to tell: no summary, evaluation or row.
std::vector<const CollectedRun*> export_runs(const std::vector<CollectedRun>& runs, const std::vector<std::string>& keys,
                                             ExportTable table, ExportFormat format,
                                             const std::function<RunRecord(const CollectedRun&)>& read,
                                             const std::function<void(std::string_view)>& write);

}  // namespace palimpsest
