// What a run takes of memory at least, asked before anything starts.
#pragma once

#include "config/spec.h"
#include "train/data.h"

#include <string>
#include <vector>

namespace palimpsest::train {

struct MemoryNeed {
    double bytes = 0;
    std::string what;  // with the keys that make it large: "a training batch (train.batch, …)"
    std::string key;   // the first of them
};

// Of this machine's memory, for `lanes` runs of one shape that train as one model. A lower bound: what a mixer keeps beside its
// input is not in it. On a GPU, weights and batches lie there and are left out.
std::vector<MemoryNeed> memory_needs(const RunSpec& spec, const Segments& segments, std::int64_t parameters, std::int64_t lanes);

struct MemoryProblem {
    std::string text;  // for the user; "" where what is there suffices
    std::string key;   // of the largest need
};

// Why it cannot be, where `there` are that many bytes.
MemoryProblem memory_problem(std::vector<MemoryNeed> needs, double there);

}  // namespace palimpsest::train
