// Sinks turn a task's events into a batch (LayoutSink), a judgement of predicted answers (JudgeSink) or the answers of a shallow
// policy (PolicySink). All replay the same program, on host and device; trace.h holds a fourth sink for the host only.
#pragma once

#include "task/draw.h"
#include "task/events.h"

#include <cstdint>

namespace palimpsest {

// A `Fact` is what a key holds at a moment.
struct Fact {
    std::int64_t value = -1;   // -1: never written, or removed
    std::int64_t end = -1;     // position of the last token of the last write
    std::int64_t changes = 0;  // writes that changed the key's value
};

// A `WriteLog` holds every write so far, in order. The last entry of a key is current, earlier ones are former. A table of open
// addresses leads from a key to its last entry, so that a row of a thousand tokens needs no scan for each of its questions.
class WriteLog {
public:
    PALIMPSEST_HD static std::int64_t words(std::int64_t capacity) { return 4 * capacity + slots(capacity); }

    PALIMPSEST_HD WriteLog(std::int64_t* words, std::int64_t capacity)
        : keys_(words),
          values_(words + capacity),
          ends_(words + 2 * capacity),
          changes_(words + 3 * capacity),
          last_(words + 4 * capacity),
          capacity_(capacity),
          mask_(slots(capacity) - 1) {
        for (std::int64_t i = 0; i <= mask_; ++i) last_[i] = -1;
    }

    PALIMPSEST_HD std::int64_t size() const { return size_; }
    PALIMPSEST_HD std::int64_t key(std::int64_t i) const { return keys_[i]; }
    PALIMPSEST_HD std::int64_t value(std::int64_t i) const { return values_[i]; }  // -1: a removal

    PALIMPSEST_HD bool append(std::int64_t key, std::int64_t value, std::int64_t end) {
        if (size_ == capacity_) return false;
        std::int64_t& last = last_[slot(key)];
        changes_[size_] = last < 0 ? 0 : changes_[last] + (values_[last] != value ? 1 : 0);
        keys_[size_] = key;
        values_[size_] = value;
        ends_[size_] = end;
        last = size_++;
        return true;
    }

    PALIMPSEST_HD Fact find(std::int64_t key) const {
        const std::int64_t last = last_[slot(key)];
        return last < 0 ? Fact{} : Fact{values_[last], ends_[last], changes_[last]};
    }

    PALIMPSEST_HD bool is_current(std::int64_t i) const { return last_[slot(keys_[i])] == i; }

private:
    // Returns the size of the table: a power of two, at least twice the entries, so that a search ends soon.
    PALIMPSEST_HD static std::int64_t slots(std::int64_t capacity) {
        std::int64_t count = 2;
        while (count < 2 * capacity) count *= 2;
        return count;
    }

    // Returns the slot that holds a key's last entry, or would hold it.
    PALIMPSEST_HD std::int64_t slot(std::int64_t key) const {
        auto at = static_cast<std::int64_t>(static_cast<std::uint64_t>(key) * 0x9E3779B97F4A7C15ull >> 32) & mask_;
        while (last_[at] >= 0 && keys_[last_[at]] != key) at = (at + 1) & mask_;
        return at;
    }

    std::int64_t *keys_, *values_, *ends_, *changes_, *last_;
    std::int64_t capacity_, mask_, size_ = 0;
};

// A `Fault` is how a program broke its own shape, which is a mistake in the task's file.
enum class Fault : std::int8_t { none, length, queries, writes, unbound_read, no_removed_token };

// Returns the words of memory that a sink of this program needs.
PALIMPSEST_HD inline std::int64_t workspace_words(const EventProgram& program) {
    return WriteLog::words(program.shape.writes) + program.scratch;
}

// An `EventSink` lays out events token by token. A derived sink hides the on_… members for the events that it uses.
template <class Derived>
class EventSink {
public:
    PALIMPSEST_HD EventSink(const EventProgram& program, std::int64_t* workspace)
        : shape_(program.shape),
          vocabulary_(program.shape.vocabulary),
          log_(workspace, program.shape.writes),
          scratch_(workspace + WriteLog::words(program.shape.writes)) {}

    PALIMPSEST_HD void write(std::int64_t key, std::int64_t value) {
        self().on_write(key, value);
        place_key(key);
        place(value, vocabulary_.values, vocabulary_.value_first, vocabulary_.value_tokens);
        if (!log_.append(key, value, position_ - 1)) fault(Fault::writes);
    }

    PALIMPSEST_HD void remove(std::int64_t key) {
        if (vocabulary_.removed < 0) return fault(Fault::no_removed_token);
        self().on_remove(key);
        place_key(key);
        for (std::int64_t j = 0; j < vocabulary_.value_tokens; ++j) place_token(vocabulary_.removed);
        if (!log_.append(key, -1, position_ - 1)) fault(Fault::writes);
    }

    PALIMPSEST_HD void read(std::int64_t key) {
        const Fact fact = log_.find(key);
        if (fact.value < 0) return fault(Fault::unbound_read);
        if (query_ == shape_.queries) return fault(Fault::queries);
        self().on_read(key, fact);
        ++query_;
        place_key(key);
        for (std::int64_t j = 1; j < vocabulary_.value_tokens; ++j) place_token(0);
    }

    PALIMPSEST_HD void noise(std::int64_t token) {
        self().on_noise(token);
        place_token(token);
    }

    PALIMPSEST_HD void gap(std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) noise(0);
    }

    PALIMPSEST_HD std::int64_t* scratch() const { return scratch_; }
    PALIMPSEST_HD std::int64_t position() const { return position_; }

    // Returns the fault of the example, if any; to be called after the last event.
    PALIMPSEST_HD Fault finish() {
        if (position_ != shape_.length) fault(Fault::length);
        if (query_ != shape_.queries) fault(Fault::queries);
        return fault_;
    }

protected:
    PALIMPSEST_HD void on_write(std::int64_t, std::int64_t) {}
    PALIMPSEST_HD void on_remove(std::int64_t) {}
    PALIMPSEST_HD void on_read(std::int64_t, const Fact&) {}  // called before the key is laid out
    PALIMPSEST_HD void on_noise(std::int64_t) {}
    PALIMPSEST_HD void on_token(std::int64_t) {}  // called before the token is laid out at position_

    // Calls put(j, token) for each token of value number `value`, most significant first.
    template <class Put>
    PALIMPSEST_HD void value_tokens(std::int64_t value, Put put) const {
        digits(value, vocabulary_.values, vocabulary_.value_first, vocabulary_.value_tokens, put);
    }

    const Shape& shape_;
    const Vocabulary& vocabulary_;
    WriteLog log_;
    std::int64_t position_ = 0, query_ = 0;

private:
    PALIMPSEST_HD Derived& self() { return static_cast<Derived&>(*this); }
    PALIMPSEST_HD void fault(Fault what) {
        if (fault_ == Fault::none) fault_ = what;
    }

    template <class Put>
    PALIMPSEST_HD static void digits(std::int64_t number, std::int64_t base, std::int64_t first, std::int64_t count, Put put) {
        std::int64_t power = 1;
        for (std::int64_t j = 1; j < count; ++j) power *= base;
        for (std::int64_t j = 0; j < count; ++j, power /= base) {
            put(j, first + number / power);
            number %= power;
        }
    }

    PALIMPSEST_HD void place(std::int64_t number, std::int64_t base, std::int64_t first, std::int64_t count) {
        if (count == 1) return place_token(first + number);
        digits(number, base, first, count, [this](std::int64_t, std::int64_t token) { place_token(token); });
    }

    PALIMPSEST_HD void place_key(std::int64_t key) { place(key, vocabulary_.keys, vocabulary_.key_first, vocabulary_.key_tokens); }

    PALIMPSEST_HD void place_token(std::int64_t token) {
        if (position_ == shape_.length) return fault(Fault::length);
        self().on_token(token);
        ++position_;
    }

    std::int64_t* scratch_;
    Fault fault_ = Fault::none;
};

// A `LayoutSink` writes one row of a batch.
class LayoutSink : public EventSink<LayoutSink> {
public:
    PALIMPSEST_HD LayoutSink(const EventProgram& program, std::int64_t* workspace, const BatchView& batch, std::int64_t row)
        : EventSink(program, workspace), row_(batch) {
        const std::int64_t questions = row * shape_.queries, answers = questions * vocabulary_.value_tokens;
        row_.tokens += row * shape_.length;
        row_.positions += answers;
        row_.targets += answers;
        if (row_.distance) row_.distance += questions;
        if (row_.overwrites) row_.overwrites += questions;
    }

private:
    friend EventSink;

    PALIMPSEST_HD void on_token(std::int64_t token) { row_.tokens[position_] = token; }

    PALIMPSEST_HD void on_read(std::int64_t, const Fact& fact) {
        const std::int64_t first = query_ * vocabulary_.value_tokens, at = position_ + vocabulary_.key_tokens - 1;
        value_tokens(fact.value, [&](std::int64_t j, std::int64_t token) {
            row_.positions[first + j] = at + j;
            row_.targets[first + j] = token;
        });
        if (row_.distance) row_.distance[query_] = position_ - fact.end;
        if (row_.overwrites) row_.overwrites[query_] = fact.changes;
    }

    BatchView row_;
};

// A `JudgeSink` judges the predicted token ids [Q, m] of one example. Where several classes fit, the first of Answer is taken.
class JudgeSink : public EventSink<JudgeSink> {
public:
    PALIMPSEST_HD JudgeSink(const EventProgram& program, std::int64_t* workspace, const std::int64_t* predicted, Answer* classes)
        : EventSink(program, workspace), predicted_(predicted), classes_(classes) {}

private:
    friend EventSink;

    PALIMPSEST_HD void on_read(std::int64_t key, const Fact& fact) { classes_[query_] = classify(key, fact); }

    PALIMPSEST_HD Answer classify(std::int64_t key, const Fact& fact) const {
        const std::int64_t* tokens = predicted_ + query_ * vocabulary_.value_tokens;
        std::int64_t value = 0;
        for (std::int64_t j = 0; j < vocabulary_.value_tokens; ++j) {
            const std::int64_t digit = tokens[j] - vocabulary_.value_first;
            if (digit < 0 || digit >= vocabulary_.values) return Answer::not_a_value;
            value = value * vocabulary_.values + digit;
        }
        if (value == fact.value) return Answer::correct;
        Answer best = Answer::unbound;
        for (std::int64_t i = 0; i < log_.size(); ++i) {
            if (log_.value(i) != value) continue;
            if (log_.key(i) == key) return Answer::stale;
            if (log_.is_current(i)) best = Answer::other_current;
            else if (best == Answer::unbound) best = Answer::other_former;
        }
        return best;
    }

    const std::int64_t* predicted_;
    Answer* classes_;
};

// A `PolicySink` writes the answers of a shallow policy, as token ids [Q, m].
class PolicySink : public EventSink<PolicySink> {
public:
    PALIMPSEST_HD PolicySink(const EventProgram& program, std::int64_t* workspace, Policy policy, const Rng& rng,
                             std::int64_t* answers)
        : EventSink(program, workspace), policy_(policy), rng_(rng), answers_(answers) {}

private:
    friend EventSink;

    PALIMPSEST_HD void on_read(std::int64_t key, const Fact&) {
        std::int64_t* out = answers_ + query_ * vocabulary_.value_tokens;
        value_tokens(choose(key), [out](std::int64_t j, std::int64_t token) { out[j] = token; });
    }

    PALIMPSEST_HD std::int64_t choose(std::int64_t key) {
        switch (policy_) {
            case Policy::last_written: return pick(-1, count(-1) - 1);
            case Policy::first_of_key: return pick(key, 0);
            case Policy::random_of_key: return pick(key, uniform(rng_, count(key)));
            case Policy::random_of_row: return pick(-1, uniform(rng_, count(-1)));
            case Policy::majority_of_row: return majority();
        }
        return 0;
    }

    // Returns whether entry i is a write of `key`, or of any key when `key` is -1; removals do not count.
    PALIMPSEST_HD bool matches(std::int64_t i, std::int64_t key) const {
        return log_.value(i) >= 0 && (key < 0 || log_.key(i) == key);
    }
    PALIMPSEST_HD std::int64_t count(std::int64_t key) const {
        std::int64_t n = 0;
        for (std::int64_t i = 0; i < log_.size(); ++i) n += matches(i, key);
        return n;
    }
    PALIMPSEST_HD std::int64_t pick(std::int64_t key, std::int64_t nth) const {
        for (std::int64_t i = 0; i < log_.size(); ++i)
            if (matches(i, key) && nth-- == 0) return log_.value(i);
        return 0;
    }

    // Returns the value written most often, the earliest of equals. The value is remembered while no write comes between two reads.
    PALIMPSEST_HD std::int64_t majority() {
        if (majority_size_ == log_.size()) return majority_;
        majority_size_ = log_.size();
        std::int64_t most = 0;
        for (std::int64_t i = 0; i < log_.size(); ++i) {
            if (log_.value(i) < 0) continue;
            std::int64_t n = 0;
            for (std::int64_t j = 0; j < log_.size(); ++j) n += log_.value(j) == log_.value(i);
            if (n > most) {
                most = n;
                majority_ = log_.value(i);
            }
        }
        return majority_;
    }

    Policy policy_;
    Rng rng_;
    std::int64_t* answers_;
    std::int64_t majority_ = 0, majority_size_ = -1;
};

}  // namespace palimpsest
