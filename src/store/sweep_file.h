// sweep.h5: collected from the runs' files by a verb, never by workers; can be deleted and rebuilt. Layout: docs/results_format.md.
#pragma once

#include "store/collect.h"

#include <string>
#include <vector>

namespace palimpsest {

// Writes <folder>/sweep.h5 under a temporary name, then renames.
void write_sweep_file(const std::string& folder, const std::string& sweep_id, const std::string& manifest_yaml,
                      const std::vector<CollectedRun>& runs);

}  // namespace palimpsest
