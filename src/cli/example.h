// A worked example of a task: its events, and its tokens with the answers under them.
#pragma once

#include "task/task.h"

#include <string>
#include <vector>

namespace palimpsest::cli {

struct WorkedExample {
    std::vector<std::string> events;
    std::vector<std::int64_t> tokens, positions, targets;  // positions and targets have one entry per predicted token
    Shape shape;
};
WorkedExample work_example(const Program& program, std::uint64_t seed);

std::string token_name(std::int64_t token, const Vocabulary& vocabulary);  // "k17", "v5", "." for filler, "gone" for a removal
// Returns rows of at most `width` columns: position, token, predicted.
std::string token_rows(const WorkedExample& example, std::size_t width);

}  // namespace palimpsest::cli
