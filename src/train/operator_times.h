// Which operators a piece of work spends its time in, as LibTorch tells of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace palimpsest::train {

struct OperatorTime {
    std::string name;         // "aten::mm [4096, 64] [64, 192]": shapes of its tensors; a node of backward has its name alone
    double milliseconds = 0;  // processor time of the calling thread, without the operators that it calls
    double calls = 0;
};
// Of one call of `work`, the longest first; what belongs to no operator has the name `no_operator`. Operators of a GPU only start
// on the thread that calls them: their time is not told.
inline constexpr const char* no_operator = "(no operator: our own loops, the optimizer)";
std::vector<OperatorTime> operator_times(const std::function<void()>& work);

}  // namespace palimpsest::train
