// The shape of a tensor as text for messages: "[2, 64, 3]".
#pragma once

#include "ops/tensor.h"

#include <fmt/format.h>

#include <string>

namespace palimpsest::ops {

inline std::string shape_text(const at::Tensor& x) {
    return x.defined() ? fmt::format("[{}]", fmt::join(x.sizes().begin(), x.sizes().end(), ", ")) : std::string("undefined");
}

}  // namespace palimpsest::ops
