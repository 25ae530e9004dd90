// The values that every reader of HDF5 knows as attributes of an object, each under its name; and a config as such.
#pragma once

#include "config/value.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace palimpsest {

using Attribute = std::variant<std::int64_t, double, std::string>;
using Attributes = std::vector<std::pair<std::string, Attribute>>;

inline const Attribute* find(const Attributes& attributes, std::string_view name) {
    for (const auto& [key, value] : attributes)
        if (key == name) return &value;
    return nullptr;
}

inline std::string in_words(const Attribute& value) {
    return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

// In words; "unknown" where there is none of that name.
inline std::string words_under(const Attributes& attributes, std::string_view name) {
    const Attribute* value = find(attributes, name);
    return value == nullptr ? "unknown" : in_words(*value);
}

// A value in its own type; true and false stay words: there is no boolean that every reader knows.
Attribute native(const Value& value);
// One attribute per value of the resolved config, by dotted key.
Attributes flat_config(const Value& resolved);

}  // namespace palimpsest
