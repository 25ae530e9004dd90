#include "sweep/pack.h"

#include "train/lane_values.h"

#include <algorithm>
#include <map>
#include <utility>

namespace palimpsest {

std::vector<std::string> lane_keys() {
    std::vector<std::string> keys;
    for (const LaneField& field : lane_fields) keys.emplace_back(field.key);
    return keys;
}

bool is_lane_key(std::string_view key) {
    return std::any_of(std::begin(lane_fields), std::end(lane_fields), [&](const LaneField& field) { return field.key == key; });
}

std::string pack_shape(const RunSpec& spec) {
    Value shape = spec.resolved;
    shape.set("train", train_schema().write_all(&spec.train));  // whether weight_decay_on counts depends on the value of a lane
    for (const std::string& key : lane_keys()) {
        const std::size_t dot = key.find('.');
        if (dot == std::string::npos) shape.set(key, Value());
        else shape.find(key.substr(0, dot))->set(key.substr(dot + 1), Value());
    }
    return emit_flow(shape);
}

std::int64_t most_lanes(std::int64_t lanes, Device device) {
    if (lanes > 0) return lanes;
    return device == Device::cpu ? 1 : 16;
}

std::vector<std::vector<std::size_t>> plan_packs(const std::vector<PlannedRun>& runs, const std::vector<std::int64_t>& step,
                                                 std::int64_t lanes) {
    std::vector<std::vector<std::size_t>> packs;
    std::map<std::pair<std::string, std::int64_t>, std::size_t> open;  // the pack of that shape and step that has room
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const auto most = static_cast<std::size_t>(most_lanes(lanes, runs[i].spec.run.device));
        if (step[i] < 0 || most == 1) {
            packs.push_back({i});
            continue;
        }
        const auto [entry, is_new] = open.try_emplace({pack_shape(runs[i].spec), step[i]}, packs.size());
        if (!is_new && packs[entry->second].size() < most) {
            packs[entry->second].push_back(i);
        } else {
            entry->second = packs.size();
            packs.push_back({i});
        }
    }
    return packs;
}

}  // namespace palimpsest
