// Keys that change nothing: refused where a person set them, dropped where something later overrules them.
#include "config/build.h"
#include "errors.h"
#include "fake_catalog.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "catch.h"

using namespace palimpsest;
using fake::small;

namespace {

// The only error of the config, without its excerpt; "" when there is none.
std::string error(const std::string& text, const std::vector<std::string>& overrides = {}) {
    const std::string report = error_of([&] { fake::parse(text, overrides); });
    CHECK((report.empty() || report.ends_with("\n1 error")));
    return first_line(report);
}

const Value* resolved(const RunSpec& run, const std::string& path) { return find_path(run.resolved, path); }

std::vector<std::string> varied(const Experiment& experiment) {
    std::vector<std::string> lines;
    for (const PlannedRun& run : experiment.runs) {
        lines.emplace_back();
        for (const auto& [key, value] : run.varied) lines.back() += (lines.back().empty() ? "" : " ") + key + "=" + value;
    }
    return lines;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("a key without effect is an error at its place", "[effect]") {
    const std::string fixed = "data: {mode: fixed}\n";
    const struct {
        std::string more, message;
    } cases[] = {
        {"train: {schedule: constant, lr_final: 0.1}",
         "dir/f.yaml:5:39: 'train.lr_final' has no effect: it counts only where train.schedule is cosine; leave it out"},
        {fixed + "train: {epochs: 3, schedule: constant, schedule_by: epoch}",
         "dir/f.yaml:6:53: 'train.schedule_by' has no effect: it counts only where train.schedule is cosine; leave it out"},
        {"train: {weight_decay: 0, weight_decay_on: all}",
         "dir/f.yaml:5:43: 'train.weight_decay_on' has no effect: it counts only where train.weight_decay is not 0.0; leave it "
         "out"},
        {fixed + "train: {epochs: 3, steps: 77}",
         "dir/f.yaml:6:27: 'train.steps' has no effect: it counts only where train.epochs is 0; leave it out"},
        {"model: {mlp_expansion: 2}",
         "dir/f.yaml:5:24: 'model.mlp_expansion' has no effect: it counts only where model.mlp is gelu or swiglu; leave it out"},
        {"model: {init: torch_default, embedding_init: spherical, init_std: 1}",
         "dir/f.yaml:5:67: 'model.init_std' has no effect: it counts only where model.init is normal or model.embedding_init is "
         "normal or "
         "model.positions is learned; leave it out"},
        {"model: {mixer: delta, layers: [conv]}",
         "dir/f.yaml:5:16: 'model.mixer' has no effect: it counts only where model.layers is []; leave it out"},
        {"model: {depth: 1, rescale_output: false}",
         "dir/f.yaml:5:35: 'model.rescale_output' has no effect: a model of one branch rescales by 1"},
        {"model: {mixer: conv, rescale_output: false}",
         "dir/f.yaml:5:38: 'model.rescale_output' has no effect: no branch of this model has an output projection"},
        {"model: {mixer: conv, positions: rotary}",
         "dir/f.yaml:5:33: 'model.positions' has no effect: no mixer of this model takes rotary positions; set learned or none"},
        {"model: {mixer: conv}\nrun: {backend: chunk}",
         "dir/f.yaml:6:16: 'run.backend' has no effect: no mixer of this model is a recurrence; leave it out"},
        {"data: {order: in_order}",
         "dir/f.yaml:5:15: 'data.order' has no effect: it counts only where data.mode is fixed; leave it out"},
        {"data: {segments: in_order}",
         "dir/f.yaml:5:18: 'data.segments' has no effect: there is one train segment only; leave it out"},
        {"mixers: {softmax: {rate: 2}}",
         "dir/f.yaml:5:26: 'mixers.softmax.rate' has no effect: it counts only where mixers.softmax.fades is true; leave it out"},
        {"mixers: {delta: {rate: 2}}",  // used or not
         "dir/f.yaml:5:24: 'mixers.delta.rate' has no effect: it counts only where mixers.delta.fades is true; leave it out"},
    };
    for (const auto& [more, message] : cases) {
        INFO(more);
        CHECK(error(small + more + "\n") == message);
    }
    CHECK(error("task: {name: update, revert: true, train: [{}], test: [{overwrites: 0..1}]}\n") ==
          "dir/f.yaml:1:30: 'task.revert' has no effect: it counts only where task.overwrites is not 0, 1 or 0..1; leave it out");
    CHECK(error("task: {name: update, train: [{overwrites: 3}], test: [{revert: true}]}\n") ==
          "dir/f.yaml:1:64: 'task.test.0.revert' has no effect: it counts only where task.test.0.overwrites is not 0, 1 or 0..1; "
          "leave it out");
    CHECK(error("task: {name: update, revert: true, train: [{overwrites: 3}], test: [{}]}\n").empty());  // one segment is enough
    CHECK(error("task: {name: update, overwrites: 3, train: [{overwrites: 1}], test: [{overwrites: 2}]}\n") ==
          "dir/f.yaml:1:34: 'task.overwrites' has no effect: every segment has its own 'overwrites'; set task.train.0.overwrites, "
          "task.test.0.overwrites, …");
}

TEST_CASE("for this call a key must have an effect whatever its value", "[effect]") {
    CHECK(error(small + "train: {schedule: constant}\n", {"train.lr_final=0"}) ==
          "<command line>:argument 1: 'train.lr_final' has no effect: it counts only where train.schedule is cosine; leave it out");
    CHECK(error(small, {"train.schedule=constant", "train.lr_final=0.5"}) ==
          "<command line>:argument 2: 'train.lr_final' has no effect: it counts only where train.schedule is cosine; leave it out");
    CHECK(error(small, {"task.train.0.examples=9"}) ==
          "<command line>:argument 1: 'task.train.0.examples' has no effect: where data.mode is fresh no example comes twice, and "
          "the only "
          "segment has every step; set data.mode to fixed");
    CHECK(error(small, {"task.train.0.examples=9", "data.mode=fixed"}).empty());
    CHECK(error(small + "train: {schedule: constant}\nsweep: {grid: {train.lr_final: [0, 0.1]}}\n") ==
          "dir/f.yaml:6:36: 'train.lr_final' has no effect: it counts only where train.schedule is cosine; leave it out");
    CHECK(error(small + "sweep: {grid: {mixers.softmax.rate: [0.5, 0.7]}}\n") ==
          "dir/f.yaml:5:43: 'mixers.softmax.rate' has no effect: it counts only where mixers.softmax.fades is true; leave it out");
}

TEST_CASE("a default that is written out says what is the case", "[effect]") {
    const std::pair<std::string, std::string> cases[] = {
        {"train: {schedule: constant, lr_final: 0}", "train: {schedule: constant}"},
        {"train: {weight_decay: 0, weight_decay_on: matrices}", "train: {weight_decay: 0}"},
        {"model: {mlp: none, mlp_expansion: 4}", "seed: 1"},
        {"model: {mixer: softmax, layers: [conv]}", "model: {layers: [conv]}"},
        {"data: {order: shuffled, segments: interleaved}", "seed: 1"},
        {"mixers: {softmax: {fades: false, rate: 0.5}}", "seed: 1"},
    };
    for (const auto& [written, plain] : cases) {
        INFO(written);
        const RunSpec run = fake::run(small + written + "\n");
        CHECK(run.id == fake::run(small + plain + "\n").id);
        CHECK(run.resolved.same_content(fake::run(small + plain + "\n").resolved));
    }
}

TEST_CASE("what a later file, the command line or the sweep overrules gives way, and is gone", "[effect]") {
    RunSpec run = fake::run(small + "train: {lr_final: 0.3, schedule_by: step}\nmixers: {softmax: {fades: true, rate: 2}}\n",
                            {"train.schedule=constant", "mixers.softmax.fades=false"});
    CHECK_FALSE(resolved(run, "train.lr_final"));
    CHECK_FALSE(resolved(run, "train.schedule_by"));
    CHECK_FALSE(resolved(run, "mixers.softmax.rate"));
    CHECK(run.train.lr_final == 0);  // nothing can depend on it
    CHECK(static_cast<const fake::Delta*>(run.mixers.at("softmax").get())->rate == 0.5);

    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("palimpsest_effect_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "base.yaml") << small << "model: {mlp_expansion: 2, mixer: delta}\ntrain: {lr_final: 0.3}\n";
    std::ofstream(folder / "main.yaml") << "base: base.yaml\nmodel: {layers: [conv]}\ntrain: {schedule: constant}\n";
    run = load_experiment((folder / "main.yaml").string(), {}, fake::catalog(), {}).runs.at(0).spec;
    for (const char* key : {"model.mlp_expansion", "model.mixer", "train.lr_final"}) CHECK_FALSE(resolved(run, key));
    std::filesystem::remove_all(folder);

    const Experiment sweep = fake::parse(small + "sweep: {grid: {train.schedule: [constant, cosine], train.lr_final: [0, 0.1]}}\n");
    CHECK(varied(sweep) ==
          Lines{"train.schedule=constant", "train.schedule=cosine train.lr_final=0.0", "train.schedule=cosine train.lr_final=0.1"});
    REQUIRE(sweep.notes.size() == 1);
    CHECK(sweep.notes[0] ==
          "1 of 4 runs repeat another and were merged; e.g. train.schedule=constant train.lr_final=0.1 is "
          "train.schedule=constant train.lr_final=0");
    const Experiment mixers = fake::parse(
        small + "model: {positions: rotary}\nsweep: {grid: {model.mixer: [softmax, conv], mixers.softmax.heads: [1, 2]}}\n");
    CHECK(varied(mixers) ==
          Lines{"model.mixer=softmax mixers.softmax.heads=1", "model.mixer=softmax mixers.softmax.heads=2", "model.mixer=conv"});
    CHECK(resolved(mixers.runs[0].spec, "model.positions")->text == "rotary");
    CHECK(resolved(mixers.runs[2].spec, "model.positions")->text == "none");
    // Both at once, as a whole section.
    CHECK(error(small + "sweep: {grid: {train: [{schedule: constant, lr_final: 0.1}, {lr: 0.1}]}}\n") ==
          "dir/f.yaml:5:55: 'train.lr_final' has no effect: it counts only where train.schedule is cosine; leave it out");
}

TEST_CASE("a mistake elsewhere is not blamed on a key that it would have let count", "[effect]") {
    CHECK(error(small + "model: {mlp: gleu, mlp_expansion: 2}\n") ==
          "dir/f.yaml:5:14: 'model.mlp' expects one of none, identity_with_norm, gelu, swiglu; got 'gleu'; did you mean 'gelu'?");
}

TEST_CASE("what is set for this call must count in some run", "[effect]") {
    const std::string shared = small + "mixers: {delta: {heads: 2}}\n",
                      both = small + "sweep: {grid: {model.mixer: [softmax, delta]}}\n";
    CHECK(fake::parse(shared).runs.size() == 1);  // a file may share its options with other files
    CHECK(error(small, {"mixers.delta.heads=2"}) ==
          "<command line>:argument 1: 'mixers.delta.heads' has no effect: no run with this model looks at it; leave it out");
    CHECK(error(small, {"mixers.delta={heads: 2}"}) ==
          "<command line>:argument 1: 'mixers.delta' has no effect: no run with this model looks at it; leave it out");
    CHECK(error(both, {"mixers.delta.heads=2"}).empty());
    CHECK(error(both, {"mixers.conv={}"}) ==
          "<command line>:argument 1: 'mixers.conv' has no effect: no run of this sweep looks at it; leave it out");
    CHECK_THAT(error(small + "sweep: {grid: {model.layers: [[conv], [delta]]}}\n", {"model.mixer=delta"}),
               ContainsSubstring("'model.mixer' has no effect"));
    CHECK_THAT(error(small + "sweep: {grid: {mixers.delta.heads: [1, 2]}}\n"),
               ContainsSubstring("'mixers.delta.heads' has no effect"));
}

TEST_CASE("a record holds no value of what the run does not use", "[effect]") {
    const RunSpec layered = fake::run(small + "model: {layers: [conv, delta]}\n"), uniform = fake::run(small);
    CHECK_FALSE(resolved(layered, "model.mixer"));
    CHECK(emit_flow(*resolved(layered, "model.layers")) == "[conv, delta]");
    CHECK(resolved(uniform, "model.mixer")->text == "softmax");
    CHECK_FALSE(resolved(uniform, "model.layers"));
    CHECK_FALSE(resolved(fake::run(small + "data: {mode: fixed}\ntrain: {epochs: 1}\n"), "train.steps"));
    // A task's option is that of all segments, or stands in each.
    CHECK(emit_flow(*resolved(uniform, "task")) ==
          "{name: recall, power: 0.01, distinct: true, train: [{length: 32, pairs: 4, examples: 500}], valid: [], test: [{length: "
          "64, pairs: 8, "
          "examples: 1000}, {length: 128, pairs: 8, examples: 1000}]}");
    const RunSpec update =
        fake::run("task: {name: update, revert: true, train: [{overwrites: 2}], test: [{overwrites: 0}, {overwrites: 1}]}\n");
    CHECK(emit_flow(*resolved(update, "task")) ==
          "{name: update, length: 64, revert: true, train: [{overwrites: 2, examples: 1000}], valid: [], test: [{overwrites: 0, "
          "examples: 1000}, "
          "{overwrites: 1, examples: 1000}]}");
    CHECK(update.task.test[0].label == "overwrites=0");  // revert does not count there, so it makes no difference
    CHECK(
        fake::parse(small + "sweep: {grid: {model.layers: [[conv], [delta]]}, exclude: [{model.layers: [conv]}]}\n").runs.size() ==
        1);
    CHECK(error(small + "sweep: {grid: {model.layers: [[conv], [delta]]}, exclude: [{model.mixer: softmax}]}\n") ==
          "dir/f.yaml:5:61: 'sweep.exclude': no run has the key 'model.mixer'; did you mean 'model.layers' or 'model.init' or "
          "'model.mlp' or "
          "'model.width'?");
}

TEST_CASE("whoever chooses a value with a caution is told", "[effect]") {
    const std::string text = small + "mixers: {softmax: {normalise: false}, delta: {normalise: false}}\n";
    CHECK(fake::parse(text).notes == Lines{"'mixers.softmax.normalise' false: the memory may grow"});
    CHECK(fake::parse(text + "sweep: {grid: {model.mixer: [softmax, delta]}, seeds: 2}\n").notes ==
          Lines{"'mixers.softmax.normalise' false: the memory may grow", "'mixers.delta.normalise' false: the memory may grow"});
    CHECK(fake::parse(small).notes.empty());
}

// Law: what an option depends on exists, can be told from its values, and does not come back to it.
TEST_CASE("conditions name options and values that there are, and lead nowhere in a circle", "[law]") {
    for (const AnySchema* schema :
         std::initializer_list<const AnySchema*>{&model_schema(), &train_schema(), &data_schema(), &eval_schema(),
                                                 &runtime_schema(), &fake::delta_schema(), &fake::update_schema()}) {
        const auto object = schema->make_default();
        for (const Option& option : schema->options()) {
            INFO(option.name);
            for (const AnyOf& any : option.used_when)
                for (const Condition& condition : any) {
                    const Option* other = schema->find(condition.option);
                    REQUIRE(other);
                    for (const std::string& value : condition.values) {
                        Diagnostics errors;
                        other->read(object.get(), parse_yaml("value", "v: " + value).entries.at(0).value, "v", errors);
                        CHECK(errors.empty());
                        CHECK(emit_flow(other->write(object.get())) == value);
                    }
                    CHECK((other == &option || schema->decided_by(*other).size() < 10));
                }
        }
    }
}
