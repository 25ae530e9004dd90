#include "store/collect.h"

#include "core/error.h"
#include "core/file.h"
#include "store/run_folder.h"

namespace palimpsest {
namespace {

// Of a run without a file that can be read.
Attributes planned_config(const SweepRun& run) {
    const std::string path = run.folder + "/config.yaml";
    try {
        if (!run.config.empty()) return flat_config(parse_yaml(path, run.config));
        return file_exists(path) ? flat_config(load_yaml(path)) : Attributes();
    } catch (const Error&) {
        return {};
    }
}

}  // namespace

std::vector<CollectedRun> collect(const std::vector<SweepRun>& runs, RunParts parts) {
    std::vector<CollectedRun> collected;
    for (const SweepRun& run : runs) {
        CollectedRun row;
        row.run = run;
        const RunFolder folder(run.folder);
        try {
            row.state = folder.state();
            row.record = read_run(folder.file("run.h5"), parts);
            row.present = true;
        } catch (const Error& error) {
            row.problem = error.what();
            row.record = {};
            row.record.config = planned_config(run);
        }
        collected.push_back(std::move(row));
    }
    return collected;
}

}  // namespace palimpsest
