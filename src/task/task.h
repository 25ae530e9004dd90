// Tasks are programs of events. A task file (tasks/NAME.cpp) holds a parameter struct, `emit`, facts and a registration; everything
// else - tokens, positions, targets, judging, shallow policies, slices, fingerprints - is made from its events by the sinks.
//
//     template <class Sink> PALIMPSEST_HD static void emit(const Program& program, Rng& rng, Sink& sink) {
//         for (…) sink.write(key, value);      // key_tokens + value_tokens positions
//         for (…) sink.noise(token);           // one position
//         for (…) sink.read(key);              // key_tokens + value_tokens - 1 positions; scored; the answer is never laid out
//     }
//
// `emit` calls events in the order of the sequence and fills exactly program.shape.length positions. It is a pure function of
// (program, rng). Integers only; compiled for host and device (see sinks.h for the whole event list).
#pragma once

#include "config/schema.h"
#include "core/philox.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

// Token ids: keys [key_first, key_first + keys), values [value_first, value_first + values), filler 0. A key of several tokens is a
// number in base `keys`, most significant token first; the same for values.
struct Vocabulary {
    std::int64_t size = 0;
    std::int64_t key_first = 1, keys = 0, value_first = 0, values = 0;
    std::int64_t key_tokens = 1, value_tokens = 1;
};

// Static facts of a segment: every example has exactly these.
struct Shape {
    std::int64_t length = 0;          // T
    std::int64_t queries = 0;         // Q, scored answers of an example
    std::int64_t writes = 0;          // most writes of an example (sizes of the sinks' logs)
    std::int64_t max_overwrites = 0;  // most changes of one key
    Vocabulary vocabulary;
};

// Order persisted in run.h5 (/eval/answer_class): do not renumber.
enum class Answer : std::int8_t { correct = 0, stale = 1, other_current = 2, other_former = 3, unbound = 4, not_a_value = 5 };
constexpr int answer_classes = 6;
const char* to_string(Answer answer);

// Shallow policies, scored by the same judge on the same examples: a result is read against the best of them.
enum class Policy : std::int8_t { last_written = 0, first_of_key = 1, random_of_key = 2, random_of_row = 3, majority_of_row = 4 };
constexpr int policies = 5;
const char* to_string(Policy policy);

// Where a batch is written: row-major, owned by the caller. m = value_tokens.
struct BatchView {
    std::int64_t* tokens = nullptr;      // [B, T]
    std::int64_t* positions = nullptr;   // [B, Q, m]  the position at which value token j is predicted
    std::int64_t* targets = nullptr;     // [B, Q, m]  token ids
    std::int64_t* distance = nullptr;    // [B, Q]     positions between the end of the key's last write and the read; may be null
    std::int64_t* overwrites = nullptr;  // [B, Q]     changes of the key before the read; may be null
};

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

protected:
    Shape shape_;
};

struct TaskFacts {
    std::string name;      // as in YAML
    std::string summary;   // one line
    std::string paper;     // source
    std::string ceiling;   // best possible accuracy and why
};

class Task {
public:
    virtual ~Task() = default;
    virtual const TaskFacts& facts() const = 0;
    virtual const AnySchema& schema() const = 0;   // has at least `length`
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
