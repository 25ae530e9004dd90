// The values in which the lanes of a pack may differ. Each is one row of `lane_fields`, which says where the config has it and how
// a checkpoint writes it; the shape of a pack is the config without these keys.
#pragma once

#include "config/spec.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace palimpsest {

struct LaneValues {
    std::uint64_t seed = 1;
    double lr = 1e-3, weight_decay = 0.1, beta1 = 0.9, beta2 = 0.999, init_scale = 1;
};

struct LaneField {
    std::string_view key;  // of the config: "train.lr"
    void (*read)(LaneValues& values, const RunSpec& spec);
    std::string (*text)(const LaneValues& values);  // exact

    // The name in checkpoints: the key's last word.
    constexpr std::string_view name() const { return key.substr(key.rfind('.') + 1); }
};

namespace lanes {

template <class T>
const T& setting(const RunSpec& spec, T RunSpec::*member) {
    return spec.*member;
}
template <class T>
const T& setting(const RunSpec& spec, T TrainSpec::*member) {
    return spec.train.*member;
}

template <auto member, auto setting_member>
constexpr LaneField field(std::string_view key) {
    return {key,
            [](LaneValues& values, const RunSpec& spec) {
                using T = std::remove_reference_t<decltype(values.*member)>;
                values.*member = static_cast<T>(setting(spec, setting_member));
            },
            [](const LaneValues& values) { return fmt::format("{}", values.*member); }};
}

}  // namespace lanes

inline constexpr LaneField lane_fields[] = {
    lanes::field<&LaneValues::seed, &RunSpec::seed>("seed"),
    lanes::field<&LaneValues::lr, &TrainSpec::lr>("train.lr"),
    lanes::field<&LaneValues::weight_decay, &TrainSpec::weight_decay>("train.weight_decay"),
    lanes::field<&LaneValues::beta1, &TrainSpec::beta1>("train.beta1"),
    lanes::field<&LaneValues::beta2, &TrainSpec::beta2>("train.beta2"),
    lanes::field<&LaneValues::init_scale, &TrainSpec::init_scale>("train.init_scale"),
};

inline LaneValues lane_values(const RunSpec& spec) {
    LaneValues values;
    for (const LaneField& field : lane_fields) field.read(values, spec);
    return values;
}

}  // namespace palimpsest
