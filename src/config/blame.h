// Where an error about several keys stands. Internal to this floor.
#pragma once

#include "config/compose.h"

#include <string>
#include <vector>

namespace palimpsest {

// Of the keys that `message` names, as they stand in the config or in one of `sections` ("task.train.0", "task"): the place of the
// first that was set for this call, else of the first that the config holds, else `otherwise`.
Source blame(const std::string& message, const std::vector<std::string>& sections, const Value& root,
             const std::vector<Setting>& settings, const Source& otherwise);

}  // namespace palimpsest
