// Tasks as programs of events, in words that host and device compilers both read: no fmt, no torch, no containers.
//
// A task's parameter struct derives from EventProgram and has
//
//     template <class Sink> PALIMPSEST_HD void emit(Rng& rng, Sink& sink) const;
//
// `emit` calls these members of the sink in the order of the sequence:
//
//     sink.write(key, value)   the fact "key holds value from here on"; key_tokens + value_tokens positions
//     sink.remove(key)         "key holds nothing from here on"; as long as a write, `removed` stands where the value would
//     sink.read(key)           a scored question; key_tokens + value_tokens - 1 positions: the key, then blanks. Value token j is
//                              predicted at the position of the last key token + j, so the answer never enters the sequence
//     sink.noise(token)        one position of filler
//     sink.gap(n)              n positions of the filler token 0
//     sink.scratch()           `scratch` words of working memory; they hold anything at first
//
// Keys are numbers in [0, keys ^ key_tokens), values in [0, values ^ value_tokens). `emit` is a pure function of (*this,
// rng), uses integers only, and fills exactly shape.length positions with exactly shape.queries reads. It may only read
// a key that holds a value.
#pragma once

#include "core/philox.h"

#include <cstdint>

namespace palimpsest {

// The `Vocabulary` maps token ids: keys [key_first, key_first + keys), values [value_first, value_first + values), filler 0. A key
// of several tokens is a number in base `keys`, most significant token first; so is a value in base `values`.
struct Vocabulary {
    std::int64_t size = 0;
    std::int64_t key_first = 1, keys = 0, value_first = 0, values = 0;
    std::int64_t key_tokens = 1, value_tokens = 1;
    std::int64_t removed = -1;  // the token of a removal; -1: the task removes nothing

    PALIMPSEST_HD std::int64_t width() const { return key_tokens + value_tokens; }  // positions of a write
    PALIMPSEST_HD std::int64_t key_count() const { return power(keys, key_tokens); }
    PALIMPSEST_HD std::int64_t value_count() const { return power(values, value_tokens); }

private:
    PALIMPSEST_HD static std::int64_t power(std::int64_t base, std::int64_t exponent) {
        std::int64_t result = 1;
        for (; exponent > 0; --exponent) result *= base;
        return result;
    }
};

// A `Shape` holds the fixed facts of a segment; every example has exactly these.
struct Shape {
    std::int64_t length = 0;          // T
    std::int64_t queries = 0;         // Q, scored answers of an example
    std::int64_t writes = 0;          // most writes and removals of an example (capacity of the sinks' logs)
    std::int64_t max_overwrites = 0;  // most changes of one key
    Vocabulary vocabulary;
};

// An `Answer` is the class of a predicted answer. run.h5 persists the numbers (/eval/answer_class): do not renumber.
enum class Answer : std::int8_t { correct = 0, stale = 1, other_current = 2, other_former = 3, unbound = 4, not_a_value = 5 };
constexpr int answer_classes = 6;

// A `Policy` is a shallow way to answer. The same judge scores it on the same examples: a result is read against the best policy.
enum class Policy : std::int8_t { last_written = 0, first_of_key = 1, random_of_key = 2, random_of_row = 3, majority_of_row = 4 };
constexpr int policies = 5;

// A `BatchView` is where a batch is written: row-major memory of the caller. m = value_tokens.
struct BatchView {
    std::int64_t* tokens = nullptr;      // [B, T]
    std::int64_t* positions = nullptr;   // [B, Q, m]  the position at which value token j is predicted
    std::int64_t* targets = nullptr;     // [B, Q, m]  token ids
    std::int64_t* distance = nullptr;    // first token of the read - last token of the key's last write; may be null
    std::int64_t* overwrites = nullptr;  // [B, Q]     changes of the key before the read; may be null
};

// `EventProgram` is the base of a task's parameter struct. The struct must be trivially copyable, because kernels take it by value.
struct EventProgram {
    Shape shape;
    std::int64_t scratch = 0;              // words of working memory that emit uses
    const std::uint32_t* table = nullptr;  // integer weights made once on the host; the Program that runs this owns them
    std::int64_t table_size = 0;
};

}  // namespace palimpsest
