// Needles in a haystack (after Kamradt's test and RULER, Hsieh et al. 2024): a few facts at chosen depths of a
// long text, asked at its end.
//
//     length 16, needles 1, distractors 1, filler repeated, pattern 2:   a b a b k7 v3 a b a k1 v9 b a b a | k7
//     predicted at the last key: v3.  k1 is a distractor: written like a needle, never asked.
//
// The depth of a needle is the share of the haystack's filler before it: 0 is the very start, 100 right before the questions.
#include "task/draw.h"
#include "task/filler.h"
#include "task/sinks.h"

namespace palimpsest {

struct NeedleProgram : EventProgram {
    std::int64_t needles = 0, distractors = 0;
    std::int64_t shallowest = 0, deepest = 0;  // filler tokens before a needle
    std::int64_t haystack = 0;                 // filler tokens in all
    std::int64_t pattern = 0;                  // period of the filler; 0: it never repeats

    template <class Sink>
    PALIMPSEST_HD void emit(Rng& rng, Sink& sink) const {
        const std::int64_t facts = needles + distractors;
        const RandomOrder keys(shape.vocabulary.key_count(), rng), values(shape.vocabulary.value_count(), rng);
        const RandomOrder order(needles, rng);
        const Filler straw(FillerKind::random, shape.vocabulary, keys, facts);

        // Facts 0 … needles - 1 are asked. Insertion sorts the facts by depth; equal depths stand in either order.
        std::int64_t *depth = sink.scratch(), *fact = depth + facts, *repeated = fact + facts;
        for (std::int64_t i = 0; i < facts; ++i) {
            const std::int64_t low = i < needles ? shallowest : 0, high = i < needles ? deepest : haystack;
            const std::int64_t mine = low + uniform(rng, high - low + 1);
            const bool after_equals = uniform(rng, 2) == 1;
            std::int64_t at = i;
            for (; at > 0 && (depth[at - 1] > mine || (depth[at - 1] == mine && !after_equals)); --at) {
                depth[at] = depth[at - 1];
                fact[at] = fact[at - 1];
            }
            depth[at] = mine;
            fact[at] = i;
        }
        for (std::int64_t i = 0; i < pattern; ++i) repeated[i] = straw.token(rng);

        std::int64_t laid = 0;
        for (std::int64_t i = 0; i <= facts; ++i) {
            for (const std::int64_t until = i < facts ? depth[i] : haystack; laid < until; ++laid)
                sink.noise(pattern > 0 ? repeated[laid % pattern] : straw.token(rng));
            if (i == facts) break;
            sink.write(keys(fact[i]), values(fact[i]));
        }
        for (std::int64_t i = 0; i < shape.queries; ++i) sink.read(keys(order(i)));
    }
};

}  // namespace palimpsest

#ifdef __CUDACC__
#include "task/device.cuh"
PALIMPSEST_DEVICE_TASK(palimpsest::NeedleProgram)
#else

#include "core/error.h"
#include "task/options.h"
#include "task/program.h"

namespace palimpsest {

namespace {

enum class Haystack { repeated, diverse };

struct NeedleOptions : VocabularyOptions {
    std::int64_t length = 128, needles = 1, queries = 0, distractors = 0;
    Range depth{0, 100};
    Haystack filler = Haystack::diverse;
    std::int64_t pattern = 8;
};

struct NeedleTask {
    using Options = NeedleOptions;
    using Program = NeedleProgram;

    static TaskFacts facts() {
        return {"needle",
                "needles in a haystack: facts at chosen depths among filler and distractors, asked at the end",
                "Hsieh et al. 2024, RULER: What's the Real Context Size of Your Long-Context Language Models?, arXiv 2404.06654",
                "1.0",
                {Policy::last_written, Policy::random_of_row, Policy::majority_of_row}};
    }

    static const Schema<Options>& schema() {
        static const Schema<Options> schema = add_vocabulary(
            Schema<Options>()
                .field("length", &Options::length, between(2, 1 << 24), "positions of an example")
                .field("needles", &Options::needles, between(1, 1 << 16), "facts that may be asked")
                .field("queries", &Options::queries, between(0, 1 << 16), "needles asked at the end, in random order; 0: all")
                .field("distractors", &Options::distractors, between(0, 1 << 16), "facts at any depth that are never asked")
                .field("depth", &Options::depth, between(0, 100), "percent of the haystack before a needle, uniform in this range")
                .choice("filler", &Options::filler, {{"repeated", Haystack::repeated}, {"diverse", Haystack::diverse}},
                        "one short pattern again and again, or fresh random tokens; never a live key")
                .field("pattern", &Options::pattern, between(1, 1 << 16), "tokens of the repeated pattern")
                .used_when("filler", {"repeated"}));
        return schema;
    }

    static Compiled<Program> compile(const Options& o) {
        NeedleProgram p;
        const Vocabulary v = make_vocabulary(o);
        const std::int64_t facts = o.needles + o.distractors, queries = o.queries > 0 ? o.queries : o.needles;
        if (queries > o.needles)
            fail(ExitCode::usage, "{} queries are more than the {} needles: queries <= needles is needed", queries, o.needles);
        const std::int64_t written = facts * v.width(), read = queries * (v.width() - 1);
        if (written + read > o.length) {
            fail(ExitCode::usage, "length {} is too short for {} needles, {} distractors and {} queries: they take {} positions",
                 o.length, o.needles, o.distractors, queries, written + read);
        }
        const std::string who = fmt::format("{} needles and {} distractors", o.needles, o.distractors);
        need_keys(v, facts, who);
        need_values(v, facts, who);

        p.needles = o.needles;
        p.distractors = o.distractors;
        p.haystack = o.length - written - read;
        p.shallowest = o.depth.low * p.haystack / 100;
        p.deepest = o.depth.high * p.haystack / 100;
        p.pattern = o.filler == Haystack::repeated ? o.pattern : 0;
        p.scratch = 2 * facts + p.pattern;
        p.shape = {.length = o.length, .queries = queries, .writes = facts, .max_overwrites = 0, .vocabulary = v};
        return {p};
    }
};

const RegisterTask<NeedleTask> registered;

}  // namespace

}  // namespace palimpsest
#endif
