// The place of an error about several keys. Internal to this floor.
#pragma once

#include "config/compose.h"

#include <string>
#include <vector>

namespace palimpsest {

// Returns the place of a key that `message` names, as it stands in the config or in one of `sections` ("task.train.0", "task"): of
// the first key that was set for this call, else of the first that the config holds. Returns `otherwise` where there is none.
Source blame(const std::string& message, const std::vector<std::string>& sections, const Value& root,
             const std::vector<Setting>& settings, const Source& otherwise);

}  // namespace palimpsest
