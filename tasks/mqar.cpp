// Multi-query associative recall (Arora et al. 2023, "Zoology"): pairs of key and value, then each key at a power-law distance.
//
//     length 16, pairs 2:   k7 v3 k1 v9 | k1 .  .  .  k7 .  .  .  .  .  .  .
//     predicted at the keys of the second part:   v9          v3
//
// The second part is a row of slots, each wide enough for a pair. Each question takes a slot of its own: slot i = 1, 2, … with
// probability in proportion to i ^ (power_a - 1), so 0.01 asks soon after the pairs and 1 anywhere.
#include "task/draw.h"
#include "task/filler.h"
#include "task/sinks.h"

namespace palimpsest {

struct MqarProgram : EventProgram {  // its table holds the weight of each slot
    std::int64_t pairs = 0;
    bool values_distinct = true;
    FillerKind filler = FillerKind::zero;

    template <class Sink>
    PALIMPSEST_HD void emit(Rng& rng, Sink& sink) const {
        const Vocabulary& vocabulary = shape.vocabulary;
        const RandomOrder keys(vocabulary.key_count(), rng), values(vocabulary.value_count(), rng), order(pairs, rng);
        const Filler noise(filler, vocabulary, keys, pairs);

        for (std::int64_t i = 0; i < pairs; ++i)
            sink.write(keys(i), values_distinct ? values(i) : uniform(rng, vocabulary.value_count()));

        const std::int64_t slots = table_size, width = vocabulary.width();
        std::int64_t *tree = sink.scratch(), *asked = tree + slots;
        WeightedDraw draw(tree, slots, [this](std::int64_t slot) { return static_cast<std::int64_t>(table[slot]); });
        for (std::int64_t slot = 0; slot < slots; ++slot) asked[slot] = -1;
        for (std::int64_t i = 0; i < shape.queries; ++i) {
            const std::int64_t slot = draw.draw(rng);
            draw.lower(slot, table[slot]);
            asked[slot] = shape.queries < pairs ? order(i) : i % pairs;
        }

        for (std::int64_t slot = 0; slot < slots; ++slot) {
            if (asked[slot] < 0) {
                noise.lay(sink, rng, width);
            } else {
                sink.read(keys(asked[slot]));
                noise.lay(sink, rng, 1, true);
            }
        }
        noise.lay(sink, rng, shape.length - sink.position());
    }
};

}  // namespace palimpsest

#ifdef __CUDACC__
#include "task/device.cuh"
PALIMPSEST_DEVICE_TASK(palimpsest::MqarProgram)
#else

#include "core/error.h"
#include "task/options.h"
#include "task/power_law.h"
#include "task/program.h"

namespace palimpsest {

namespace {

struct MqarOptions : VocabularyOptions {
    std::int64_t length = 64, pairs = 4, queries = 0;
    double power_a = 0.01;
    FillerKind filler = FillerKind::zero;
    bool filler_collides = false, values_distinct = true;
};

struct MqarTask {
    using Options = MqarOptions;
    using Program = MqarProgram;

    static TaskFacts facts() {
        return {"mqar",
                "multi-query associative recall: key-value pairs, then every key is asked at a power-law distance",
                "Arora et al. 2023, Zoology: Measuring and Improving Recall in Efficient Language Models, arXiv 2312.04927",
                "1.0; with filler_collides a little less, as filler then rewrites keys",
                {Policy::last_written, Policy::random_of_row, Policy::majority_of_row}};
    }

    static const Schema<Options>& schema() {
        static const Schema<Options> schema = add_vocabulary(
            Schema<Options>()
                .field("length", &Options::length, between(2, 1 << 24), "positions of an example")
                .field("pairs", &Options::pairs, between(1, 1 << 20), "key-value pairs")
                .field("queries", &Options::queries, between(0, 1 << 20), "questions; 0: as many as pairs, each key once")
                .field("power_a", &Options::power_a, above(0), "slot i of the questions has weight i ^ (power_a - 1); 1 is uniform")
                .choice("filler", &Options::filler, {{"zero", FillerKind::zero}, {"random", FillerKind::random}},
                        "between the questions: token 0, or random tokens that are never a live key")
                .field("filler_collides", &Options::filler_collides,
                       "zoology's quirk: random filler comes from the whole vocabulary, live keys included")
                .field("values_distinct", &Options::values_distinct, "no two keys of an example hold the same value"));
        return schema;
    }

    static Compiled<Program> compile(const Options& o) {
        MqarProgram p;
        const Vocabulary v = make_vocabulary(o);
        p.pairs = o.pairs;
        p.values_distinct = o.values_distinct;
        p.filler = o.filler_collides ? FillerKind::colliding : o.filler;
        if (o.filler_collides && o.filler != FillerKind::random)
            fail(ExitCode::usage, "filler_collides: true needs filler: random");

        const std::int64_t queries = o.queries > 0 ? o.queries : o.pairs, width = v.width();
        if (width * (o.pairs + queries) > o.length) {
            fail(ExitCode::usage,
                 "length {} is too short for {} pairs and {} queries: {} * (pairs + queries) = {} <= length is needed", o.length,
                 o.pairs, queries, width, width * (o.pairs + queries));
        }
        const std::string who = fmt::format("{} pairs", o.pairs);
        need_keys(v, o.pairs, who);
        if (o.values_distinct) need_values(v, o.pairs, who + " with values_distinct");

        p.shape = {.length = o.length, .queries = queries, .writes = o.pairs, .max_overwrites = 0, .vocabulary = v};
        std::vector<std::uint32_t> table = power_law(o.length / width - o.pairs, o.power_a - 1);
        p.scratch = 2 * static_cast<std::int64_t>(table.size());
        return {p, std::move(table)};
    }
};

const RegisterTask<MqarTask> registered;

}  // namespace

}  // namespace palimpsest
#endif
