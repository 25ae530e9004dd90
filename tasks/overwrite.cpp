// Facts that are rewritten in place: does a memory answer the latest value or an earlier one?
//
//     length 16, pairs 2, overwrites 1:   k7 v3 k1 v9 k7 v5 .  .  k1 v2 .  .  k1 .  k7 .
//     predicted at the last two keys:                                         v2    v5      (v9 and v3 are stale)
//
// The sequence is a row of slots, each wide enough for a write; a read and the filler behind it take one slot too. Key
// i has a script of fixed length: its first write, then its changes, some with a read before them. Only the order of
// the keys' events is random:
//   interleaved  one random order of all events
//   blocked      all first writes, then all first changes, then all second changes, …; the order within a block is random
// At the end every asked key is read once. Without `distance` the free slots fall anywhere. With `distance`, the last writes and
// their reads form a tail in which each read stands exactly its distance behind its write, and all free slots lie in that tail.
#include "task/draw.h"
#include "task/filler.h"
#include "task/sinks.h"

namespace palimpsest {

struct OverwriteProgram : EventProgram {
    std::int64_t pairs = 0;
    std::int64_t updated = 0, fewest = 0, most = 0;  // key i < updated changes spread(fewest, most, i, updated) times
    std::int64_t changes = 0;                        // of all keys together
    std::int64_t between = 0;                        // reads before a change
    std::int64_t asked = 0;                          // keys read at the end
    std::int64_t tail = 0, near = 0, far = 0;        // slots of the tail (0: no distance); steps from a last write to its read
    bool blocked = false, values_distinct = true, revert = false;
    FillerKind filler = FillerKind::zero;

    PALIMPSEST_HD std::int64_t changes_of(std::int64_t i) const { return i < updated ? spread(fewest, most, i, updated) : 0; }

    template <class Sink>
    struct Page;  // an example while it is being written

    template <class Sink>
    PALIMPSEST_HD void emit(Rng& rng, Sink& sink) const {
        Page<Sink> page(*this, rng, sink);
        page.main_part();
        if (tail > 0) page.tail_part();
        page.noise.lay(sink, rng, shape.length - sink.position());
    }
};

template <class Sink>
struct OverwriteProgram::Page {
    const OverwriteProgram& p;
    const Vocabulary& v = p.shape.vocabulary;
    Rng& rng;
    Sink& sink;
    const RandomOrder keys, values;
    const RandomOrder asked_keys;    // which keys are read at the end, in this order
    const RandomOrder read_changes;  // which changes have a read before them
    const RandomOrder steps;         // which asked key gets which distance
    const Filler noise;
    std::int64_t values_used = 0;

    // Working memory of the sink. Of each key:
    std::int64_t* next_word = sink.scratch();
    std::int64_t* tree = take(p.pairs);          // of the draw among the keys
    std::int64_t* written = take(p.pairs);       // writes so far
    std::int64_t* held = take(p.pairs);          // the current value
    std::int64_t* first = take(p.pairs);         // the first value
    std::int64_t* first_change = take(p.pairs);  // number of its first change among the changes of all keys
    std::int64_t* in_tail = take(p.pairs);       // 1 where its last write stands in the tail
    // Of each change, and of each slot of the tail:
    std::int64_t* read_before = take(p.changes);  // 1 until the read before the change is done
    std::int64_t* slots = take(p.tail);           // 0 free, 1 + i a write of key i, -(1 + i) its read

    PALIMPSEST_HD std::int64_t* take(std::int64_t words) {
        std::int64_t* taken = next_word;
        next_word += words;
        return taken;
    }

    PALIMPSEST_HD Page(const OverwriteProgram& program, Rng& r, Sink& s)
        : p(program),
          rng(r),
          sink(s),
          keys(v.key_count(), r),
          values(v.value_count(), r),
          asked_keys(p.pairs, r),
          read_changes(p.changes, r),
          steps(p.asked, r),
          noise(p.filler, v, keys, p.pairs) {
        std::int64_t changes = 0;
        for (std::int64_t i = 0; i < p.pairs; ++i) {
            written[i] = 0;
            in_tail[i] = 0;
            first_change[i] = changes;
            changes += p.changes_of(i);
        }
        for (std::int64_t i = 0; i < p.changes; ++i) read_before[i] = 0;
        for (std::int64_t i = 0; i < p.between; ++i) read_before[read_changes(i)] = 1;
        if (p.tail == 0) return;
        for (std::int64_t i = 0; i < p.asked; ++i) in_tail[asked_keys(i)] = 1;
    }

    // Returns the number of events of key i in the main part: write number `write` (0: the first) and the read before it.
    PALIMPSEST_HD std::int64_t events(std::int64_t i, std::int64_t write) const {
        const std::int64_t last = p.changes_of(i);
        if (write > last) return 0;
        const std::int64_t read = write > 0 ? read_before[first_change[i] + write - 1] : 0;
        return read + (write == last && in_tail[i] ? 0 : 1);
    }

    PALIMPSEST_HD void main_part() {
        std::int64_t events_left = p.pairs + p.changes + p.between + (p.tail > 0 ? -p.asked : p.asked);
        std::int64_t slots_left = p.tail > 0 ? events_left : p.shape.length / v.width();
        // Slots are left free so that every way to spread them among the events is equally likely.
        const auto spend_slot = [&] {
            for (; uniform(rng, slots_left) >= events_left; --slots_left) noise.lay(sink, rng, v.width());
            --slots_left;
            --events_left;
        };

        for (std::int64_t block = 0; block <= (p.blocked ? p.most : 0); ++block) {
            WeightedDraw draw(tree, p.pairs, [&](std::int64_t i) {
                std::int64_t sum = events(i, block);
                for (std::int64_t write = 1; !p.blocked && write <= p.most; ++write) sum += events(i, write);
                return sum;
            });
            while (draw.total() > 0) {
                const std::int64_t i = draw.draw(rng);
                draw.lower(i, 1);
                spend_slot();
                const std::int64_t change = first_change[i] + written[i] - 1;  // the next one, once the key is written
                if (written[i] > 0 && read_before[change] == 1) {
                    read_before[change] = 0;
                    ask(i);
                } else {
                    write(i);
                }
            }
        }
        if (p.tail > 0) return;
        for (std::int64_t i = 0; i < p.asked; ++i) {
            spend_slot();
            ask(asked_keys(i));
        }
    }

    // Places a write and its read together at the first fitting place after a random one; compile() made sure there is one.
    PALIMPSEST_HD void tail_part() {
        for (std::int64_t slot = 0; slot < p.tail; ++slot) slots[slot] = 0;
        for (std::int64_t i = 0; i < p.asked; ++i) {
            const std::int64_t step = spread(p.near, p.far, steps(i), p.asked), places = p.tail - step;
            std::int64_t at = uniform(rng, places);
            while (slots[at] != 0 || slots[at + step] != 0) at = (at + 1) % places;
            slots[at] = 1 + asked_keys(i);
            slots[at + step] = -slots[at];
        }
        for (std::int64_t slot = 0; slot < p.tail; ++slot) {
            if (slots[slot] == 0) noise.lay(sink, rng, v.width());
            else if (slots[slot] > 0) write(slots[slot] - 1);
            else ask(-slots[slot] - 1);
        }
    }

    PALIMPSEST_HD void write(std::int64_t i) {
        const std::int64_t change = written[i]++;
        if (change > 1 && p.revert && change == p.changes_of(i)) held[i] = first[i];
        else if (p.values_distinct) held[i] = values(values_used++);
        else if (change == 0) held[i] = uniform(rng, v.value_count());
        else held[i] = (held[i] + 1 + uniform(rng, v.value_count() - 1)) % v.value_count();  // any value but the one held
        if (change == 0) first[i] = held[i];
        sink.write(keys(i), held[i]);
    }

    PALIMPSEST_HD void ask(std::int64_t i) {
        sink.read(keys(i));
        noise.lay(sink, rng, 1, true);
    }
};

}  // namespace palimpsest

#ifdef __CUDACC__
#include "task/device.cuh"
PALIMPSEST_DEVICE_TASK(palimpsest::OverwriteProgram)
#else

#include "core/error.h"
#include "task/options.h"
#include "task/program.h"

#include <cmath>

namespace palimpsest {

namespace {

struct OverwriteOptions : VocabularyOptions {
    std::int64_t length = 64, pairs = 4, queries = 0, reads_between = 0;
    double updated = 1;
    Range overwrites{1, 1}, distance{0, 0};
    bool blocked = false, values_distinct = true, revert = false;
    FillerKind filler = FillerKind::zero;
};

struct OverwriteTask {
    using Options = OverwriteOptions;
    using Program = OverwriteProgram;

    static TaskFacts facts() {
        return {"overwrite", "keys rewritten in place: the latest value counts, earlier ones are stale",
                "after Schlag et al. 2021, Linear Transformers Are Secretly Fast Weight Programmers, setting 2, arXiv 2102.11174",
                "1.0"};
    }

    static const Schema<Options>& schema() {
        static const Schema<Options> schema = add_vocabulary(
            Schema<Options>()
                .field("length", &Options::length, between(2, 1 << 24), "positions of an example")
                .field("pairs", &Options::pairs, between(1, 1 << 20), "keys, each with one value at a time")
                .field("updated", &Options::updated, between(0, 1), "share of the keys that are rewritten, rounded to whole keys")
                .used_unless("overwrites", {"0"})
                .field("overwrites", &Options::overwrites, between(0, 1000),
                       "changes of a rewritten key; a range is spread evenly over them")
                .choice("order", &Options::blocked, {{"interleaved", false}, {"blocked", true}},
                        "writes of all keys in random order, or all first writes, then all first changes, and so on")
                .used_unless("overwrites", {"0"})
                .used_unless("updated", {"0.0"})
                .field("distance", &Options::distance, between(0, 1 << 24),
                       "positions from the last write of a key to its last read, spread over the keys; 0: wherever they fall")
                .field("queries", &Options::queries, between(0, 1 << 20), "keys read at the end, in random order; 0: all")
                .field("reads_between", &Options::reads_between, between(0, 1 << 20),
                       "further scored reads, each between two writes of its key")
                .field("values_distinct", &Options::values_distinct,
                       "no value is written twice in an example; false: a change only differs from the value it replaces")
                .field("revert", &Options::revert, "the last of two or more changes brings back the key's first value")
                .used_unless("overwrites", {"0", "1", "0..1"})
                .used_unless("updated", {"0.0"})
                .choice("filler", &Options::filler, {{"zero", FillerKind::zero}, {"random", FillerKind::random}},
                        "between the events: token 0, or random tokens that are never a live key"));
        return schema;
    }

    static Compiled<Program> compile(const Options& o) {
        OverwriteProgram p;
        const Vocabulary v = make_vocabulary(o);
        const std::int64_t width = v.width();
        p.pairs = o.pairs;
        p.updated = std::llround(o.updated * static_cast<double>(o.pairs));
        p.fewest = o.overwrites.low;
        p.most = o.overwrites.high;
        std::int64_t most_changes = 0;
        for (std::int64_t i = 0; i < p.updated; ++i) {
            p.changes += p.changes_of(i);
            most_changes = std::max(most_changes, p.changes_of(i));
        }
        p.between = o.reads_between;
        p.asked = o.queries > 0 ? o.queries : o.pairs;
        p.blocked = o.blocked;
        p.values_distinct = o.values_distinct;
        p.revert = o.revert;
        p.filler = o.filler;

        const std::int64_t writes = o.pairs + p.changes, reads = p.asked + p.between;
        if (p.asked > o.pairs)
            fail(ExitCode::usage, "{} queries are more than the {} pairs: queries <= pairs is needed", p.asked, o.pairs);
        if (p.between > p.changes) {
            fail(ExitCode::usage,
                 "reads_between {} is more than the {} changes of an example: each change has room for one read before it",
                 p.between, p.changes);
        }
        if (width * (writes + reads) > o.length) {
            fail(ExitCode::usage,
                 "length {} is too short for {} writes and {} reads of {} pairs: {} * (writes + reads) = {} <= length is needed",
                 o.length, writes, reads, o.pairs, width, width * (writes + reads));
        }
        need_keys(v, o.pairs, fmt::format("{} pairs", o.pairs));
        if (o.values_distinct) need_values(v, writes, fmt::format("{} writes with values_distinct", writes));
        else need_values(v, 2, "values that change");
        if (o.revert && !o.values_distinct) fail(ExitCode::usage, "revert: true needs values_distinct: true");
        if (o.distance != Range{0, 0}) place_tail(p, o.distance, width, o.length / width - (writes + p.between - p.asked));

        p.scratch = 6 * o.pairs + p.changes + p.tail;
        p.shape = {.length = o.length, .queries = reads, .writes = writes, .max_overwrites = most_changes, .vocabulary = v};
        return {p};
    }

    // Converts distances to steps: a step of k slots is a distance of 1 + (k - 1) * width positions. A pair already placed rules
    // out at most four places of another, so with 4 * (asked - 1) + 1 places at the largest step every pair finds one.
    static void place_tail(OverwriteProgram& p, const Range& distance, std::int64_t width, std::int64_t tail) {
        if (distance.low < 1) fail(ExitCode::usage, "distance {}..{} starts below 1", distance.low, distance.high);
        p.near = (distance.low - 1 + width - 1) / width + 1;
        p.far = (distance.high - 1) / width + 1;
        if (p.near > p.far) {
            fail(ExitCode::usage,
                 "distance {}..{} holds no possible distance: they are 1, {}, {}, … (steps of key_tokens + value_tokens)",
                 distance.low, distance.high, 1 + width, 1 + 2 * width);
        }
        p.tail = tail;
        const std::int64_t largest = tail - 4 * (p.asked - 1) - 1;
        if (p.far > largest) {
            if (largest < 1)
                fail(ExitCode::usage, "no room for distance: raise length by {} positions at least", (p.far - largest) * width);
            fail(ExitCode::usage,
                 "distance {}..{} does not fit: with these writes and reads it can be {} at most, or raise length by {}",
                 distance.low, distance.high, 1 + (largest - 1) * width, (p.far - largest) * width);
        }
    }
};

const RegisterTask<OverwriteTask> registered;

}  // namespace

}  // namespace palimpsest
#endif
