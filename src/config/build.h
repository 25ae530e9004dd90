// From the tree of values to one run's specs. Internal to this floor.
#pragma once

#include "config/compose.h"
#include "config/spec.h"

#include <string>
#include <vector>

namespace palimpsest {

// `root` without its sweep. `settings`: what was set for this call; each must have an effect or it is an error.
RunSpec build_run(const Value& root, const std::vector<Setting>& settings, const Catalog& catalog, Diagnostics& errors);

// The text whose hash is the run's id: schema version, then one line for each identity key that differs from its default, sorted.
std::string identity_text(const RunSpec& run, const Catalog& catalog);
std::string identify(const RunSpec& run, const Catalog& catalog);  // 12 hex digits

}  // namespace palimpsest
