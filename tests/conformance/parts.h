// A mixer taken apart: its parameters by name, so that a test can write its equations out from them.
#pragma once

#include "bench.h"

#include <string>
#include <utility>
#include <vector>

namespace palimpsest::conformance {

// One mixer in fp64, one lane.
struct Parts {
    Unit unit;
    explicit Parts(const Variant& variant) : unit(variant, {7}, at::kDouble) {}
    at::Tensor operator[](const std::string& name) const;  // parameter "mixer.NAME", without the lane axis; std::out_of_range
    // x [B, T, d] times NAME.weight, in heads: [B, T, H, D]
    at::Tensor heads(const at::Tensor& x, const std::string& name, std::int64_t count) const;
    at::Tensor forward(const at::Tensor& x);  // [B, T, d] -> [B, T, d]
};

at::Tensor unit_length(const at::Tensor& x);
at::Tensor rms_normed(const at::Tensor& x, const at::Tensor& weight, double eps);

// Scalars of a mixer at model width d, nothing allocated.
std::int64_t parameter_count(const std::string& mixer, std::int64_t d,
                             const std::vector<std::pair<std::string, std::string>>& options);

// The message with which a variant refuses to be built ("no error" when it does not).
std::string refusal(const Variant& variant);

}  // namespace palimpsest::conformance
