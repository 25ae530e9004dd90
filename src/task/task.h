// Tasks are programs of events. A task file (tasks/NAME.cpp) holds a parameter struct, `emit`, facts and a registration; everything
// else - tokens, positions, targets, judging, shallow policies, slices, fingerprints - is made from its events by the sinks.
//
//     template <class Sink> PALIMPSEST_HD void emit(Rng& rng, Sink& sink) const {
//         for (…) sink.write(key, value);      // key_tokens + value_tokens positions
//         for (…) sink.noise(token);           // one position
//         for (…) sink.read(key);              // key_tokens + value_tokens - 1 positions; scored; the answer is never laid out
//     }
//
// events.h has the whole list and what `emit` must keep to; program.h makes a Program and a Task of such a file.
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

// One segment of one task, compiled: immutable, safe to share between threads.
class Program {
public:
    virtual ~Program() = default;
    const Shape& shape() const { return shape_; }

    // Lays out examples[i] of (seed, stream) into row i. The result does not depend on threads or on the other examples.
    virtual void generate(std::uint64_t seed, Stream stream, std::span<const std::uint64_t> examples, BatchView out,
                          int threads = 1) const = 0;
    // Replays the same examples against predicted token ids [B, Q, m]; one class per answer into `classes` [B, Q].
    virtual void judge(std::uint64_t seed, Stream stream, std::span<const std::uint64_t> examples, const std::int64_t* predicted,
                       Answer* classes, int threads = 1) const = 0;
    // What `policy` would answer, as token ids [B, Q, m].
    virtual void answer(Policy policy, std::uint64_t seed, Stream stream, std::span<const std::uint64_t> examples,
                        std::int64_t* predicted, int threads = 1) const = 0;
    // One example, event by event, for `describe`: "write k17 v5 @0", "read k17 -> v5 @34 (distance 32, overwrites 0)".
    virtual std::vector<std::string> trace(std::uint64_t seed, Stream stream, std::uint64_t example) const = 0;

    // A GPU makes the same examples, to the bit, where nvcc has compiled this program. The caller gives it a copy of the table and
    // working memory; generate_on_device enqueues a batch and throws Error(run_failed) with what CUDA says against it.
    virtual bool on_device() const { return false; }
    virtual std::span<const std::uint32_t> table() const { return {}; }  // to be copied to the device once
    virtual std::int64_t workspace_words() const { return 0; }           // of an example
    virtual void generate_on_device(Stream, const DeviceBatch&) const {}

protected:
    Shape shape_;
};

struct TaskFacts {
    std::string name;     // as in YAML
    std::string summary;  // one line
    std::string paper;    // source
    std::string ceiling;  // best possible accuracy and why
    // What answers without doing what the task asks for. A task that rewrites nothing leaves out the policies that look up the key;
    // of a task that may rewrite, is_shallow says it segment by segment.
    std::vector<Policy> shallow = {Policy::last_written, Policy::first_of_key, Policy::random_of_key, Policy::random_of_row,
                                   Policy::majority_of_row};
};

// Whether a policy answers the questions of a segment without its memory. Policies that look up the key do where keys change their
// values; where nothing changes, to look up the key is the task itself.
bool is_shallow(Policy policy, const Shape& shape);

class Task {
public:
    virtual ~Task() = default;
    virtual const TaskFacts& facts() const = 0;
    virtual const AnySchema& schema() const = 0;  // has at least `length`
    // Checks the options together (throws Error(usage) without a place; the caller adds it) and fixes the shape.
    virtual std::unique_ptr<Program> compile(const void* options) const = 0;
};

// The registry. Names are sorted; find returns nullptr for an unknown name, get throws Error(usage) listing the known ones.
std::vector<std::string> task_names();
const Task* find_task(std::string_view name);
const Task& get_task(std::string_view name);
void register_task(std::unique_ptr<Task> task);

// FNV-1a over tokens, positions and targets of the first `count` examples: the data law's golden fingerprint.
std::uint64_t fingerprint(const Program& program, std::uint64_t seed, Stream stream, std::int64_t count);

// Upper ends of the distance buckets of the slice table: 1, 2, 4, … >= length - 1. bucket_of(distance) indexes them.
std::vector<std::int64_t> distance_buckets(std::int64_t length);
int bucket_of(std::int64_t distance, const std::vector<std::int64_t>& upper_ends);

}  // namespace palimpsest
