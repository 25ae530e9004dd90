// The values that every reader of HDF5 knows as attributes of an object, each under its name.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace palimpsest {

using Attribute = std::variant<std::int64_t, double, std::string>;
using Attributes = std::vector<std::pair<std::string, Attribute>>;

}  // namespace palimpsest
