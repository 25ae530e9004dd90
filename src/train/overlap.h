// The data law: no training example is a valid or a test example too, and no valid example a test example.
#pragma once

#include "config/spec.h"
#include "train/data.h"

#include <string>

namespace palimpsest::train {

// What is wrong with the data of a run, in words for its user; "" where the law holds or data.check_overlap is false. All examples
// that a run of fixed data trains on are looked at, or the first of each segment where they are more than 30 million tokens
// together; of fresh data the first 200,000, or fewer where these are longer than that; of valid and test as of fixed data, with 10
// million tokens each.
std::string overlap_problem(const RunSpec& spec, const Segments& segments, int threads);

// What that depends on: two runs with one key have one answer.
std::string overlap_key(const RunSpec& spec);

}  // namespace palimpsest::train
