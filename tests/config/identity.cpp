#include "config/build.h"
#include "errors.h"
#include "fake_catalog.h"

#include "catch.h"

using namespace palimpsest;
using fake::small;

namespace {

std::string id(const std::string& text, const std::vector<std::string>& overrides = {}) { return fake::run(text, overrides).id; }

std::string identity(const std::string& text) { return identity_text(fake::run(text), fake::catalog()); }

}  // namespace

TEST_CASE("the identity lists what differs from the defaults", "[identity]") {
    CHECK(identity(small) ==
          "palimpsest run, schema 1\n"
          "model.layers=[softmax, softmax]\n"
          "task.name=recall\n"
          "task.test.0.examples=1000\n"
          "task.test.0.pairs=8\n"
          "task.test.1.examples=1000\n"
          "task.test.1.length=128\n"
          "task.test.1.pairs=8\n"
          "task.train.0.examples=500\n"
          "task.train.0.length=32\n");
    CHECK(
        identity(small +
                 "model: {layers: [conv, delta, delta]}\nmixers: {delta: {heads: 2}, conv: {kernel: 3}, softmax: {heads: 5}}\n") ==
        "palimpsest run, schema 1\n"
        "mixers.delta.heads=2\n"
        "model.layers=[conv, delta, delta]\n"
        "task.name=recall\n"
        "task.test.0.examples=1000\n"
        "task.test.0.pairs=8\n"
        "task.test.1.examples=1000\n"
        "task.test.1.length=128\n"
        "task.test.1.pairs=8\n"
        "task.train.0.examples=500\n"
        "task.train.0.length=32\n");
    // Ids stand in the results of others: when this value changes, the schema version must have changed.
    CHECK(id(small) == "f5ec0df58d88");
}

TEST_CASE("what does not make another run", "[identity]") {
    const std::string same = id(small);
    const char* reordered =
        "task:\n  test: [{pairs: 8}, {pairs: 8, length: 128}]\n  train: [{examples: 500, length: 32}]\n  name: recall\n";
    CHECK(id(reordered) == same);
    for (const char* more :
         {"seed: 1\n", "name: other\n", "run: {device: cpu, threads: 7, log_every: 9, flush_seconds: 1, checkpoint_every: 3}\n",
          "run: {device: cuda}\n", "train: {lr: 1e-3, steps: 1000, schedule: cosine, optimizer: adamw, eval_batch: 5}\n",
          "model: {width: 64, mixer: softmax, depth: 2, tied_head: true}\n", "model: {layers: [softmax, softmax]}\n",
          "mixers: {delta: {heads: 8}, conv: {kernel: 5}}\n", "mixers: {softmax: {heads: 1, chunk: 64}}\n",
          "data: {seed: 0, check_overlap: false}\n", "eval: {policies: false}\n", "mixers:\n"}) {
        INFO(more);
        CHECK(id(small + more) == same);
    }
    CHECK(id(small, {"task.pairs=4", "task.distinct=true"}) == same);
    CHECK(id(small, {"task.valid=[{pairs: 8}, {length: 128, pairs: 8}]"}) == same);  // what no valid segments mean
    const std::string epochs = small + "data: {mode: fixed}\ntrain: {epochs: 3}\n";
    CHECK(id(epochs) == id(small + "data: {mode: fixed}\ntrain: {steps: 77}\n", {"train.epochs=3"}));
    // What does not count, wherever it gives way.
    CHECK(id(small, {"train.schedule=constant"}) == id(small + "train: {lr_final: 0.3}\n", {"train.schedule=constant"}));
    CHECK(id(small, {"model.mixer=conv"}) ==
          id(small + "model: {positions: rotary}\nrun: {backend: chunk}\n", {"model.mixer=conv"}));
    CHECK(id(small, {"train.weight_decay=0"}) == id(small + "train: {weight_decay_on: all}\n", {"train.weight_decay=0"}));
    CHECK(id(small, {"mixers.softmax.fades=false"}) ==
          id(small + "mixers: {softmax: {fades: true, rate: 2}}\n", {"mixers.softmax.fades=false"}));
}

TEST_CASE("what makes another run", "[identity]") {
    std::vector<std::string> ids = {id(small)};
    for (const char* change : {"seed=2",
                               "train.lr=1e-4",
                               "train.lr=0.0010000000000000002",
                               "train.steps=999",
                               "train.beta2=0.99",
                               "train.optimizer=momentum",
                               "train.non_finite=skip",
                               "model.width=65",
                               "model.depth=3",
                               "model.mixer=delta",
                               "model.layers=[softmax, delta]",
                               "model.layers=[delta, softmax]",
                               "model.positions=rotary",
                               "mixers.softmax.heads=2",
                               "mixers.softmax.normalise=false",
                               "data.seed=1",
                               "data.mode=fixed",
                               "eval.mean=examples",
                               "run.backend=reference",
                               "task.train.0.length=33",
                               "task.train.0.pairs=5",
                               "task.test.0.power=1",
                               "task.test.1.distinct=false",
                               "task.test.1.examples=999",
                               "task.test=[{pairs: 8}]",
                               "task.power=2",
                               "task.valid=[{pairs: 7}]",
                               "task.valid=[{pairs: 8}]"})
        ids.push_back(id(small, {change}));
    ids.push_back(id(small, {"run.device=cuda", "run.precision=tf32"}));
    ids.push_back(id(small, {"data.mode=fixed", "task.train.0.examples=501"}));
    ids.push_back(id(small, {"mixers.softmax.fades=true"}));
    ids.push_back(id(small, {"mixers.softmax.fades=true", "mixers.softmax.rate=2"}));
    ids.push_back(id(small, {"train.weight_decay_on=all"}));
    ids.push_back(id(small, {"model.layers=[softmax, {mixer: softmax, heads: 2}]"}));
    ids.push_back(id(small, {"model.layers=[{mixer: softmax, heads: 2}, softmax]"}));
    ids.push_back(id(small, {"model.layers=[{mixer: softmax, heads: 3}, softmax]"}));
    ids.push_back(id("task: {name: update, train: [{}], test: [{}]}\n"));
    std::vector<std::string> different = ids;
    std::sort(different.begin(), different.end());
    different.erase(std::unique(different.begin(), different.end()), different.end());
    CHECK(different.size() == ids.size());
}

TEST_CASE("a resolved config reloads to the same run", "[identity]") {
    const std::string texts[] = {
        small,
        small + "name: 'no'\nseed: 7\n",
        small +
            "name: 1e3\nmodel: {layers: [conv, delta, softmax], width: 8, embedding_dropout: 0.1}\nmixers: {delta: {heads: 2}}\n",
        small +
            "data: {mode: fixed, order: in_order}\ntrain: {epochs: 3, schedule_by: epoch, lr: 4.6415888336127773e-4, weight_decay: "
            "1e-30}\n",
        small +
            "model: {layers: [conv, {mixer: conv, kernel: 5}, {mixer: delta, fades: true, rate: 2}, {mixer: delta, heads: 4}, "
            "delta]}\n"
            "mixers: {conv: {kernel: 4}, delta: {heads: 3}}\n",
        small +
            "train: {schedule: constant, weight_decay: 0}\nmodel: {init: xavier_small, embedding_init: spherical, mixer: conv}\n",
        "task: {name: update, revert: true, train: [{overwrites: 3}, {}], test: [{overwrites: 2, revert: false}, {overwrites: "
        "0}]}\n",
        "task: {name: update, overwrites: 0..3, train: [{}, {length: 8, overwrites: 2}], valid: [{examples: 5}], test: "
        "[{overwrites: 1..2}]}\n",
    };
    for (const std::string& text : texts) {
        const RunSpec first = fake::run(text);
        const std::string resolved = emit_yaml(first.resolved);
        INFO(resolved);
        const RunSpec second = fake::run(resolved);
        CHECK(second.id == first.id);
        CHECK(second.resolved.same_content(first.resolved));  // every key is in it, numbers to the last bit
        CHECK(second.name == first.name);
        CHECK(second.model.mixers_by_layer() == first.model.mixers_by_layer());
        CHECK(second.train.lr == first.train.lr);
        REQUIRE(second.task.test.size() == first.task.test.size());
        for (std::size_t i = 0; i < first.task.test.size(); ++i) {
            CHECK(second.task.test[i].label == first.task.test[i].label);
            CHECK(second.task.test[i].resolved.same_content(first.task.test[i].resolved));
        }
    }
    CHECK(fake::run(emit_yaml(fake::run(small).resolved), {"task.distinct=false"}).id == id(small, {"task.distinct=false"}));
}

// Law: no key of any schema can be misspelt in silence.
TEST_CASE("each key with one letter dropped is an error that suggests the key", "[law]") {
    const std::pair<const AnySchema*, std::string> sections[] = {{&run_schema(), ""},
                                                                 {&model_schema(), "model"},
                                                                 {&train_schema(), "train"},
                                                                 {&data_schema(), "data"},
                                                                 {&eval_schema(), "eval"},
                                                                 {&runtime_schema(), "run"},
                                                                 {&fake::recall_schema(), "task"},
                                                                 {&fake::recall_schema(), "task.train.0"},
                                                                 {&fake::delta_schema(), "mixers.delta"}};
    for (const auto& [schema, section] : sections) {
        for (const Option& option : schema->options()) {
            for (std::size_t drop = 0; drop < option.name.size(); ++drop) {
                std::string word = option.name;
                word.erase(drop, 1);
                if (word.empty() || schema->find(word)) continue;
                const std::string path = section.empty() ? word : section + "." + word;
                INFO(path);
                const std::string report = error_of([&] { fake::parse(small, {path + "=" + option.default_text}); });
                CHECK_THAT(report, ContainsSubstring("error: unknown key '" + word + "'"));
                const auto hint = report.find("; did you mean ");
                const bool listed =
                    word.size() < 2 && report.find("; known keys: ") != std::string::npos;  // too short to resemble anything
                CHECK((listed || (hint != std::string::npos && report.find("'" + option.name + "'", hint) != std::string::npos)));
            }
        }
    }
}

TEST_CASE("every option has a meaning and a default that it accepts", "[law]") {
    for (const AnySchema* schema : std::initializer_list<const AnySchema*>{&run_schema(), &model_schema(), &train_schema(),
                                                                           &data_schema(), &eval_schema(), &runtime_schema()}) {
        const auto object = schema->make_default();
        for (const Option& option : schema->options()) {
            INFO(option.name);
            CHECK_FALSE(option.meaning.empty());
            Diagnostics errors;
            option.read(object.get(), parse_yaml("default", "v: " + option.default_text).entries.at(0).value, option.name, errors);
            CHECK(errors.empty());
            CHECK(emit_flow(option.write(object.get())) == option.default_text);
        }
    }
}
