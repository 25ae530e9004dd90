// What an evaluation says of one lane.
#pragma once

#include <cstdint>
#include <vector>

namespace palimpsest {

struct EvalResult {
    std::int64_t step = 0;
    std::vector<std::int64_t> answers;             // [S, C]
    std::vector<double> loss_sum;                  // [S]
    double valid_accuracy = 0, test_accuracy = 0;  // by spec.eval.mean
};

}  // namespace palimpsest
