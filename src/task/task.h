// Tasks are programs of events. A task file (tasks/NAME.cpp) holds a parameter struct, `emit`, facts and a registration; the sinks
// make everything else from its events: tokens, positions, targets, judging, shallow policies, slices, fingerprints.
//
//     template <class Sink> PALIMPSEST_HD void emit(Rng& rng, Sink& sink) const {
//         for (…) sink.write(key, value);      // key_tokens + value_tokens positions
//         for (…) sink.noise(token);           // one position
//         for (…) sink.read(key);              // key_tokens + value_tokens - 1 positions; scored; the answer is never laid out
//     }
//
// events.h lists all events and the rules of `emit`; program.h makes a Program and a Task of such a file.
#pragma once

#include "config/schema.h"
#include "core/philox.h"
#include "task/device.h"
#include "task/events.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

const char* to_string(Answer answer);
const char* to_string(Policy policy);

// A `Program` is one compiled segment of one task: immutable, safe to share between threads.
class Program {
public:
    virtual ~Program() = default;
    const Shape& shape() const { return shape_; }

    // Lays out examples[i] of (seed, stream) into row i. The result does not depend on threads or on the other examples.
    virtual void generate(std::uint64_t seed, Stream stream, std::span<const std::uint64_t> examples, BatchView out,
                          int threads = 1) const = 0;
    // Replays the same examples against predicted token ids [B, Q, m], and writes one class per answer into `classes` [B, Q].
    virtual void judge(std::uint64_t seed, Stream stream, std::span<const std::uint64_t> examples, const std::int64_t* predicted,
                       Answer* classes, int threads = 1) const = 0;
    // Writes the answers of `policy` as token ids [B, Q, m].
    virtual void answer(Policy policy, std::uint64_t seed, Stream stream, std::span<const std::uint64_t> examples,
                        std::int64_t* predicted, int threads = 1) const = 0;
    // Returns one example, event by event, for `describe`: "write k17 v5 @0", "read k17 -> v5 @34 (distance 32, overwrites 0)".
    virtual std::vector<std::string> trace(std::uint64_t seed, Stream stream, std::uint64_t example) const = 0;

    // Returns whether nvcc has compiled this program, so that a GPU can make the same examples, to the bit. The caller provides a
    // copy of the table and working memory; generate_on_device enqueues a batch and throws Error(run_failed) with CUDA's error.
    virtual bool on_device() const { return false; }
    virtual std::span<const std::uint32_t> table() const { return {}; }  // the caller copies the table to the device once
    virtual std::int64_t workspace_words() const { return 0; }           // for one example
    virtual void generate_on_device(Stream, const DeviceBatch&) const {}

protected:
    Shape shape_;
};

struct TaskFacts {
    std::string name;     // as in YAML
    std::string summary;  // one line
    std::string paper;    // the source
    std::string ceiling;  // best possible accuracy and why
    // Policies that answer without doing what the task asks for. A task that rewrites nothing leaves out the policies that look up
    // the key; where a task may rewrite, is_shallow decides segment by segment.
    std::vector<Policy> shallow = {Policy::last_written, Policy::first_of_key, Policy::random_of_key, Policy::random_of_row,
                                   Policy::majority_of_row};
};

// Returns whether a policy answers the questions of a segment without the memory that the segment tests. A policy that looks up the
// key is shallow where keys change their values; where nothing changes, looking up the key is the task itself.
bool is_shallow(Policy policy, const Shape& shape);

class Task {
public:
    virtual ~Task() = default;
    virtual const TaskFacts& facts() const = 0;
    virtual const AnySchema& schema() const = 0;  // has at least `length`
    // Checks the options together and fixes the shape. Throws Error(usage) without a place, which the caller adds.
    virtual std::unique_ptr<Program> compile(const void* options) const = 0;
};

// The registry has sorted names. `find` returns nullptr for an unknown name, `get` throws Error(usage) listing the known ones.
std::vector<std::string> task_names();
const Task* find_task(std::string_view name);
const Task& get_task(std::string_view name);
void register_task(std::unique_ptr<Task> task);

// Returns FNV-1a over tokens, positions and targets of the first `count` examples: the golden fingerprint of the data law.
std::uint64_t fingerprint(const Program& program, std::uint64_t seed, Stream stream, std::int64_t count);

// Returns the upper ends of the distance buckets of the slice table: 1, 2, 4, … >= length - 1. bucket_of(distance) indexes them.
std::vector<std::int64_t> distance_buckets(std::int64_t length);
int bucket_of(std::int64_t distance, const std::vector<std::int64_t>& upper_ends);

}  // namespace palimpsest
