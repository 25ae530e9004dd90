// Which operators a piece of work spends its time in, as LibTorch tells of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace palimpsest::train {

struct OperatorTime {
    std::string name;        // "aten::mm [4096, 64] [64, 192]": shapes of its tensors; a node of backward has its name alone
    double milliseconds = 0; // on the calling thread, without the operators that it calls
    std::int64_t calls = 0;
};
// Of one call of `work`, the longest first. What belongs to no operator (our own loops, the optimizer) is not among them. Operators of a
// GPU only start there: their time is not told.
std::vector<OperatorTime> operator_times(const std::function<void()>& work);

}  // namespace palimpsest::train
