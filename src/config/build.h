// From the tree of values to the specs of one run. Internal to this floor.
#pragma once

#include "config/compose.h"
#include "config/spec.h"

#include <string>
#include <vector>

namespace palimpsest {

// Builds the run from `root`, which has no sweep. `settings` are the keys set for this call; one without an effect is an error.
RunSpec build_run(const Value& root, const std::vector<Setting>& settings, const Catalog& catalog, Diagnostics& errors);

// Returns the text whose hash is the run's id: the schema version, then a sorted line for each identity key off its default.
std::string identity_text(const RunSpec& run, const Catalog& catalog);
std::string identify(const RunSpec& run, const Catalog& catalog);  // 12 hex digits

}  // namespace palimpsest
