// Which runs train together: those of one shape, as lanes of one model.
#pragma once

#include "config/spec.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

// The keys in which the lanes of a model may differ: those of the trainer's table.
std::vector<std::string> lane_keys();
bool is_lane_key(std::string_view key);

// Equal for two runs exactly when they may share a model: their configs differ in these keys alone.
std::string pack_shape(const RunSpec& spec);

// The most lanes of one model, as `lanes` of the sweep asks for (0: the choice is ours). Measured: on the CPU a lane costs as much
// as a run alone, on a GPU a small model leaves room for many.
std::int64_t most_lanes(std::int64_t lanes, Device device);

// Numbers of runs, each in one pack; packs in the order of their first run. `step[i]`: of the checkpoint from which run i goes on,
// 0 from the beginning; negative where it is not to be trained, then it stands alone. Lanes of a pack begin at one step.
std::vector<std::vector<std::size_t>> plan_packs(const std::vector<PlannedRun>& runs, const std::vector<std::int64_t>& step,
                                                 std::int64_t lanes);

}  // namespace palimpsest
