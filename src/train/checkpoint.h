// A run's checkpoint: one file that can be read with `head` (a text header) and holds everything a run needs to go on bit for bit.
//
//     palimpsest-checkpoint 2
//     step 500
//     fact seed 1                                    any number of facts: key, then text to the end of the line
//     array parameter/embedding float 64,64          name, type, shape; the bytes follow the header in this order
//     end
//     <bytes of the arrays> <8 bytes: FNV-1a of all before, little endian>
//
// Random numbers need no state: they are functions of the step. Format 1 differs in two things: the open window of the training log
// stands in it step by step (log/window), and a run that went non-finite left one of its end (fact ended non_finite).
#pragma once

#include "ops/tensor.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace palimpsest::train {

struct Checkpoint {
    std::int64_t format = 0;  // as it was read; written is always the newest
    std::int64_t step = 0;
    std::vector<std::pair<std::string, std::string>> facts;
    std::vector<std::pair<std::string, at::Tensor>> arrays;  // on the CPU, contiguous; float, double, long

    const std::string& fact(const std::string& key) const;  // "" when it is not there
    const at::Tensor* find(const std::string& name) const;  // nullptr when it is not there
};

// Temporary name, fsync, rename: the file is whole or absent.
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint);
// Throws Error(run_failed) naming the path and what is wrong with the file; Error(usage) where another program's format is to
// blame.
Checkpoint read_checkpoint(const std::string& path);

// One line per array of `expected` (name and tensor of the right shape and type) that the checkpoint lacks or holds otherwise, and
// per array with one of the prefixes of `expected` ("parameter/") that it holds too much.
std::vector<std::string> differences(const Checkpoint& checkpoint, const std::vector<std::pair<std::string, at::Tensor>>& expected);

// The checkpoints of one run: step-000000500.ckpt and so on.
std::string checkpoint_path(const std::string& folder, std::int64_t step);
std::vector<std::int64_t> checkpoint_steps(const std::string& folder);  // ascending; empty when there is no folder
// The one of `step`, which its name and its content agree about and from which a run can go on. Throws as read_checkpoint does.
Checkpoint read_checkpoint(const std::string& folder, std::int64_t step);
// The newest that can be read; nothing when there is none.
std::optional<Checkpoint> newest_checkpoint(const std::string& folder);
// Of those up to `step` all but the newest `keep` are removed. Newer ones are no business of a run that is at `step`.
void rotate_checkpoints(const std::string& folder, std::int64_t step, std::size_t keep);
// Those beyond `step`.
void remove_checkpoints_after(const std::string& folder, std::int64_t step);

}  // namespace palimpsest::train
