#include "errors.h"
#include "fake_catalog.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "catch.h"

using namespace palimpsest;
using fake::small;

namespace {

std::string error(const std::string& text, const std::vector<std::string>& overrides = {}) {
    return error_of([&] { fake::parse(text, overrides); });
}

// The report's lines that say "error:", without excerpts.
std::vector<std::string> errors(const std::string& text, const std::vector<std::string>& overrides = {}) {
    std::vector<std::string> lines;
    std::string rest = error(text, overrides);
    for (std::size_t end; !rest.empty(); rest.erase(0, end == std::string::npos ? rest.size() : end + 1)) {
        end = rest.find('\n');
        if (rest.substr(0, end).find("error: ") != std::string::npos) lines.push_back(first_line(rest));
    }
    return lines;
}

using Lines = std::vector<std::string>;

const fake::Recall& recall(const SegmentSpec& segment) { return *static_cast<const fake::Recall*>(segment.options.get()); }

class Folder {
public:
    Folder() : path_(std::filesystem::temp_directory_path() / ("palimpsest_config_" + std::to_string(::getpid()))) {
        std::filesystem::create_directories(path_ / "configs/tasks");
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    std::string file(const std::string& name, const std::string& text = "") const {
        if (!text.empty()) std::ofstream(path_ / name) << text;
        return (path_ / name).string();
    }

private:
    std::filesystem::path path_;
};

}  // namespace

TEST_CASE("a small config gives a whole run", "[experiment]") {
    const Experiment experiment = fake::parse(small);
    CHECK_FALSE(experiment.is_sweep);
    CHECK(experiment.name == "f");
    CHECK(experiment.source_yaml == small);
    REQUIRE(experiment.runs.size() == 1);
    const RunSpec& run = experiment.runs[0].spec;
    CHECK(experiment.runs[0].varied.empty());
    CHECK(run.name == "f");
    CHECK(run.seed == 1);
    CHECK(run.task.name == "recall");
    REQUIRE(run.task.train.size() == 1);
    REQUIRE(run.task.test.size() == 2);
    CHECK(run.task.valid.empty());
    CHECK(recall(run.task.train[0]).length == 32);
    CHECK(recall(run.task.train[0]).pairs == 4);
    CHECK(run.task.train[0].examples == 500);
    CHECK(run.task.train[0].label == "all");
    CHECK(run.task.test[0].label == "length=64");
    CHECK(run.task.test[1].label == "length=128");
    CHECK(run.task.test[1].examples == 1000);
    CHECK(run.task.test[1].source.where() == "dir/f.yaml:4:22");
    CHECK(emit_flow(run.task.test[1].resolved) == "{length: 128, pairs: 8, power: 0.01, distinct: true, examples: 1000}");
    CHECK(run.model.mixers_by_layer() == Lines{"softmax", "softmax"});
    REQUIRE(run.mixers.size() == 1);
    CHECK(static_cast<const fake::Delta*>(run.mixers.at("softmax").get())->heads == 1);
    CHECK(run.id.size() == 12);
    CHECK(run.id.find_first_not_of("0123456789abcdef") == std::string::npos);
}

TEST_CASE("options of the task are defaults of its segments", "[experiment]") {
    const RunSpec run =
        fake::run("task: {name: recall, pairs: 2, power: 1, train: [{pairs: 3}], valid: [{length: 16}], test: [{}]}\n");
    CHECK(recall(run.task.train[0]).pairs == 3);
    CHECK(recall(run.task.train[0]).power == 1);
    CHECK(recall(run.task.valid[0]).length == 16);
    CHECK(recall(run.task.valid[0]).pairs == 2);
    CHECK(recall(run.task.test[0]).pairs == 2);
}

TEST_CASE("valid questions are drawn from the options of test, of train, or of their own", "[experiment]") {
    const std::string task =
        "task: {name: recall, pairs: 2, train: [{length: 16, examples: 500}, {length: 32}], test: [{length: 64, examples: 7}]";
    const RunSpec plain = fake::run(task + "}\n"), as_test = fake::run(task + ", valid: test}\n"),
                  as_train = fake::run(task + ", valid: train}\n");
    CHECK(as_test.task.valid.empty());
    CHECK(as_test.id == plain.id);
    CHECK(emit_flow(*as_test.resolved.find("task")->find("valid")) == "[]");
    REQUIRE(as_train.task.valid.size() == 2);
    CHECK(recall(as_train.task.valid[0]).length == 16);
    CHECK(recall(as_train.task.valid[1]).length == 32);
    CHECK(as_train.task.valid[0].examples == 1000);  // those of train are a share of the run
    CHECK(as_train.task.valid[1].label == "length=32");
    CHECK(emit_flow(*as_train.resolved.find("task")->find("valid")) == "train");
    CHECK(as_train.id != plain.id);
    CHECK(as_train.id == fake::run(task + ", valid: [{length: 16}, {length: 32}]}\n").id);
    CHECK(fake::run(emit_yaml(as_train.resolved)).id == as_train.id);
    CHECK(errors(task + ", valid: [16]}\n") == Lines{"dir/f.yaml:1:127: 'task.valid.0' expects a map of options, got '16'"});
    CHECK(
        errors(task + ", valid: trian}\n") ==
        Lines{
            "dir/f.yaml:1:126: 'task.valid' is train, test or a list of segments, got 'trian'; train draws from the options of the "
            "training segments, test from those of the test segments"});
}

TEST_CASE("sizes that nothing could hold are errors at their places", "[experiment]") {
    CHECK(errors(small, {"model.depth=1000000000", "model.width=10000000000", "train.steps=300000000", "train.batch=2000000000",
                         "train.eval_batch=2000000000", "task.train.0.examples=4294967295"}) ==
          Lines{"<command line>:argument 1: 'model.depth' must be 1 to 1000, got 1000000000",
                "<command line>:argument 2: 'model.width' must be 1 to 1048576, got 10000000000",
                "<command line>:argument 3: 'train.steps' must be 1 to 268435456, got 300000000",
                "<command line>:argument 4: 'train.batch' must be 1 to 1073741824, got 2000000000",
                "<command line>:argument 5: 'train.eval_batch' must be 0 to 1073741824, got 2000000000",
                "<command line>:argument 6: 'task.train.0.examples' has no effect: where data.mode is fresh no example comes "
                "twice, and the "
                "only segment has every step; set data.mode to fixed",
                "<command line>:argument 6: 'task.train.0.examples' must be 1 to 4294967294, got 4294967295"});
}

TEST_CASE("an optimizer that nobody registered is an error at its place", "[experiment]") {
    CHECK(fake::run(fake::small + "train: {optimizer: momentum}\n").train.optimizer == "momentum");
    CHECK_THAT(error(fake::small + "train: {optimizer: adamv}\n"),
               ContainsSubstring("dir/f.yaml:5:20: error: unknown optimizer 'adamv'; did you mean 'adamw'?\n"));
    CHECK_THAT(error(fake::small + "train: {optimizer: zzzzzz}\n"),
               ContainsSubstring("unknown optimizer 'zzzzzz'; known: adamw, momentum\n"));
}

TEST_CASE("seven errors of one file in one report", "[experiment]") {
    CHECK(error("sede: 3\n"
                "task:\n"
                "  name: recall\n"
                "  pair: 4          # a letter short\n"
                "  train: [{length: 1e3}]\n"
                "  test: [{distinct: no}]\n"
                "model:\n"
                "  width: 0\n"
                "  mixer: deltta\n"
                "train:\n"
                "  lr: 1e-3\n"
                "  schedule: cosin\n") ==
          "dir/f.yaml:1:1: error: unknown key 'sede'; did you mean 'seed'?\n"
          "  1 | sede: 3\n"
          "    | ^~~~\n"
          "dir/f.yaml:4:3: error: unknown key 'pair' in 'task'; did you mean 'pairs'?\n"
          "  4 |   pair: 4          # a letter short\n"
          "    |   ^~~~\n"
          "dir/f.yaml:5:20: error: 'task.train.0.length' expects an integer, got '1e3'; write 1000\n"
          "  5 |   train: [{length: 1e3}]\n"
          "    |                    ^~~\n"
          "dir/f.yaml:6:21: error: 'task.test.0.distinct' expects true or false, got 'no'; write false\n"
          "  6 |   test: [{distinct: no}]\n"
          "    |                     ^~\n"
          "dir/f.yaml:8:10: error: 'model.width' must be 1 to 1048576, got 0\n"
          "  8 |   width: 0\n"
          "    |          ^\n"
          "dir/f.yaml:9:10: error: unknown mixer 'deltta'; did you mean 'delta'?\n"
          "  9 |   mixer: deltta\n"
          "    |          ^~~~~~\n"
          "dir/f.yaml:12:13: error: 'train.schedule' expects one of constant, cosine; got 'cosin'; did you mean 'cosine'?\n"
          "  12 |   schedule: cosin\n"
          "     |             ^~~~~\n"
          "7 errors");
}

TEST_CASE("duplicate keys do not hide the other errors", "[experiment]") {
    CHECK(errors(small + "seed: 1\nseed: 2\nmodle: {}\n") ==
          Lines{"dir/f.yaml:6:1: duplicate key 'seed' in line 6; it already stands in line 5",
                "dir/f.yaml:7:1: unknown key 'modle'; did you mean 'model'?"});
}

TEST_CASE("what a task must say", "[experiment]") {
    CHECK(errors("seed: 1\n") == Lines{"dir/f.yaml:1:1: no task; write task: {name: …}; known tasks: recall, update"});
    CHECK(errors("") == Lines{"dir/f.yaml:1:1: no task; write task: {name: …}; known tasks: recall, update"});
    CHECK(errors("task: {train: []}\n") == Lines{"dir/f.yaml:1:7: 'task' has no name; known tasks: recall, update"});
    CHECK(errors("task: {name: recal}\n") == Lines{"dir/f.yaml:1:14: unknown task 'recal'; did you mean 'recall'?"});
    CHECK(errors("task: {name: zzz}\n") == Lines{"dir/f.yaml:1:14: unknown task 'zzz'; known: recall, update"});
    CHECK(errors("task: {name: recall}\n") ==
          Lines{"dir/f.yaml:1:7: 'task' has no test segments; write test: [{length: 64, examples: 1000}]",
                "dir/f.yaml:1:7: 'task' has no train segments; write train: [{length: 64, examples: 1000}]"});
    CHECK(errors("task: {name: recall, train: {length: 3}, test: [{examples: 0}, 3]}\n") ==
          Lines{"dir/f.yaml:1:29: 'task.train' expects a list of segments; write [{length: 64, examples: 1000}]",
                "dir/f.yaml:1:60: 'task.test.0.examples' must be 1 to 4294967294, got 0",
                "dir/f.yaml:1:64: 'task.test.1' expects a map of options, got '3'"});
}

TEST_CASE("options that do not fit together stand where their segment has them", "[experiment]") {
    Catalog catalog = fake::catalog();
    catalog.check_task = [](const std::string& task, const void* options) {
        const auto& recall = *static_cast<const fake::Recall*>(options);
        if (recall.length < 4 * recall.pairs)
            fail(ExitCode::usage, "{}: {} pairs need a length of {}", task, recall.pairs, 4 * recall.pairs);
    };
    const auto report = [&](const std::string& text) {
        return error_of([&] { parse_experiment("f.yaml", text, {}, catalog, {}); });
    };
    CHECK(report("task:\n  name: recall\n  train: [{}, {pairs: 17}]\n  test: [{length: 8}]\nseeed: 1\n") ==
          "f.yaml:3:23: error: 'task.train.1': recall: 17 pairs need a length of 68\n"
          "  3 |   train: [{}, {pairs: 17}]\n"
          "    |                       ^~\n"
          "f.yaml:4:19: error: 'task.test.0': recall: 4 pairs need a length of 16\n"
          "  4 |   test: [{length: 8}]\n"
          "    |                   ^\n"
          "f.yaml:5:1: error: unknown key 'seeed'; did you mean 'seed'?\n"
          "  5 | seeed: 1\n"
          "    | ^~~~~\n"
          "3 errors");
    CHECK(report(small).empty());
}

TEST_CASE("mixers are validated even when a run does not use them", "[experiment]") {
    CHECK(errors(small + "mixers: {delta: {haeds: 2}, cnv: {}}\n") ==
          Lines{"dir/f.yaml:5:18: unknown key 'haeds' in 'mixers.delta'; did you mean 'heads'?",
                "dir/f.yaml:5:29: unknown mixer 'cnv' in 'mixers'; did you mean 'conv'?"});
    CHECK(errors(small + "model: {layers: [conv, dleta]}\n") ==
          Lines{"dir/f.yaml:5:24: unknown mixer 'dleta'; did you mean 'delta'?"});
    const RunSpec run =
        fake::run(small + "model: {layers: [conv, delta, delta]}\nmixers: {delta: {heads: 2}, softmax: {heads: 4}}\n");
    CHECK(run.model.depth == 3);
    REQUIRE(run.mixers.size() == 2);
    CHECK(static_cast<const fake::Conv*>(run.mixers.at("conv").get())->kernel == 3);
    CHECK(static_cast<const fake::Delta*>(run.mixers.at("delta").get())->heads == 2);
}

TEST_CASE("keys that do not fit together", "[experiment]") {
    CHECK(errors(small + "train: {epochs: 3}\n") ==
          Lines{"dir/f.yaml:5:17: 'train.epochs' needs data.mode fixed: fresh data have no epochs; write data: {mode: fixed}"});
    CHECK(errors(small + "train: {schedule_by: epoch}\n") ==
          Lines{"dir/f.yaml:5:22: 'train.schedule_by' epoch needs train.epochs"});
    CHECK(errors(small + "train: {steps: 100, warmup: 100}\n") ==
          Lines{"dir/f.yaml:5:29: 'train.warmup' is 100, but the run has 100 steps: 'train.lr' would not be reached before the "
                "end; set at "
                "most 99"});
    CHECK(errors(small + "data: {mode: fixed}\ntrain: {epochs: 2, warmup: 17}\n") ==  // 500 examples are 8 batches of 64
          Lines{"dir/f.yaml:6:28: 'train.warmup' is 17, but the run has 16 steps: 'train.lr' would not be reached before the end; "
                "set at "
                "most 15"});
    CHECK(errors(small + "train: {steps: 1e4, warmup: 2000}\n") ==  // how long it is can not be told
          Lines{"dir/f.yaml:5:16: 'train.steps' expects an integer, got '1e4'; write 10000"});
    CHECK(error(small + "train: {steps: 100, warmup: 99}\n").empty());
    CHECK(errors(small + "train: {early_stop: 0.99}\n") ==
          Lines{"dir/f.yaml:5:21: 'train.early_stop' needs train.eval_every: nothing is evaluated before the end"});
    CHECK(errors(small + "run: {precision: bf16}\n") ==
          Lines{"dir/f.yaml:5:18: 'run.precision' must be fp32 on the cpu; set run.device cuda"});
    CHECK(errors(small + "model: {depth: 3, layers: [conv, delta]}\n") ==
          Lines{"dir/f.yaml:5:16: 'model.depth' is 3, but 'model.layers' names 2 layers"});
    CHECK(errors(small + "name: ''\n") == Lines{"dir/f.yaml:5:7: 'name' must not be empty"});
    // It is a folder's, below the results.
    for (const char* name : {"..", "../../x", "/abs", "a/../../b", "a/", "."})
        CHECK(errors(small + "name: " + name + "\n") ==
              Lines{std::string("dir/f.yaml:5:7: 'name' is '") + name +
                    "'; it must be that of a folder below the results, such as recall or study/recall"});
    CHECK(errors(small + "name: latest\n") ==
          Lines{"dir/f.yaml:5:7: 'name' must not hold 'latest', which is the link to the run that started last"});
    CHECK(errors(small + "name: latest/x\n") ==
          Lines{"dir/f.yaml:5:7: 'name' must not hold 'latest', which is the link to the run that started last"});
    CHECK(errors(small + "name: \"a\\x1bb\"\n") ==
          Lines{"dir/f.yaml:5:7: 'name' is $'a\\x1bb', which holds bytes that are no text in UTF-8; write a name of "
                "plain characters (without one, the file's name counts)"});
    CHECK(errors(small + "name: " + std::string(256, 'n') + "\n") ==
          Lines{"dir/f.yaml:5:7: 'name' is longer than the 255 bytes that a folder's name may have"});
    CHECK(error(small + "name: study/one\n").empty());
    CHECK(
        error(small + "train: {epochs: 3, schedule_by: epoch, early_stop: 0.99}\ndata: {mode: fixed, order: in_order}\n").empty());
    CHECK(error(small + "run: {precision: bf16, device: cuda}\n").empty());
}

TEST_CASE("overrides follow the file's rules", "[override]") {
    const RunSpec run =
        fake::run(small + "train: {lr: 1e-2}\n",
                  {"train.lr=3e-4", "task.test.0.pairs=3", "model.layers=[conv, delta]", "mixers.delta.heads=2", "train.lr=3e-5"});
    CHECK(run.train.lr == 3e-5);
    CHECK(recall(run.task.test[0]).pairs == 3);
    CHECK(run.model.mixers_by_layer() == Lines{"conv", "delta"});
    CHECK(static_cast<const fake::Delta*>(run.mixers.at("delta").get())->heads == 2);
    CHECK(fake::run(small, {"name=x=y%z@w,[1]"}).name == "x=y%z@w,[1]");
    CHECK(fake::run(small, {"name=\"8\""}).name == "8");
    CHECK(fake::run(small, {"name=no"}).name == "no");
}

TEST_CASE("errors of overrides stand at their argument", "[override]") {
    CHECK(error(small, {"seed=2", "train.lr=1e-3", "train.lrr=3", "model.width=1e2"}) ==
          "<command line>:argument 3: error: unknown key 'lrr' in 'train'; did you mean 'lr'?\n"
          "  3 | train.lrr=3\n"
          "    |       ^~~\n"
          "<command line>:argument 4: error: 'model.width' expects an integer, got '1e2'; write 100\n"
          "  4 | model.width=1e2\n"
          "    |             ^~~\n"
          "2 errors");
    const std::pair<const char*, const char*> cases[] = {
        {"train.lr", "'train.lr' sets nothing; write key=value, such as train.lr=1e-3"},
        {"train.lr=", "'train.lr' expects a number, got nothing"},
        {"seed.x=1", "'seed' is a single value and has no key 'x'"},
        {"task.test.2.pairs=1", "'task.test' is a list and has no entry '2'; its indices are 0 to 1"},
        {"task.test.x=1", "'task.test' is a list and has no entry 'x'; its indices are 0 to 1"},
        {"train..lr=1", "'train..lr' has an empty part"},
        {"=1", "'' has an empty part"},
        {"train.lr=[1", "this '[' is not closed"},
        {"train.lr=@", "a text that begins with '@' must be quoted"},
        {"base=x.yaml", "'base' is read from files only"},
        {"model.width=010", "'model.width' expects an integer, got '010', which is ambiguous; write 10 or 0o10"},
        {"zzzzz=1", "unknown key 'zzzzz'; known keys: base, data, eval, mixers, model, name, run, seed, sweep, task, train"},
    };
    for (const auto& [argument, message] : cases) {
        INFO(argument);
        CHECK(errors(small + "seed: 1\n", {argument}) == Lines{std::string("<command line>:argument 1: ") + message});
    }
}

TEST_CASE("an override without effect is an error", "[override]") {
    CHECK(errors("task: {name: recall, train: [{pairs: 1}], test: [{pairs: 2}]}\n", {"task.pairs=3"}) ==
          Lines{"<command line>:argument 1: 'task.pairs' has no effect: every segment has its own 'pairs'; set task.train.0.pairs, "
                "task.test.0.pairs, …"});
    CHECK(errors(small + "model: {layers: [conv, delta]}\n", {"model.mixer=delta"}) ==
          Lines{"<command line>:argument 1: 'model.mixer' has no effect: it counts only where model.layers is []; leave it out"});
    CHECK(errors(small + "data: {mode: fixed}\ntrain: {epochs: 3}\n", {"train.steps=10"}) ==
          Lines{"<command line>:argument 1: 'train.steps' has no effect: it counts only where train.epochs is 0; leave it out"});
    CHECK(errors(small + "sweep: {grid: {train.lr: [1, 2]}}\n", {"train.lr=3"}) ==
          Lines{"<command line>:argument 1: 'train.lr' has no effect: the sweep sets 'train.lr'; set sweep.grid.train.lr=[…]"});
    CHECK(error(small + "data: {mode: fixed}\ntrain: {epochs: 3}\n", {"train.epochs=0", "train.steps=10"}).empty());
    // At some points of the sweep it has one.
    const Experiment mixed =
        fake::parse(small + "data: {mode: fixed}\nsweep: {grid: {train.epochs: [0, 3]}}\n", {"train.steps=10"});
    CHECK(mixed.runs.at(0).spec.train.steps == 10);
    CHECK(mixed.runs.at(1).spec.train.epochs == 3);
    CHECK(fake::parse(small + "sweep: {grid: {train.lr: [1, 2]}}\n", {"sweep.grid.train.lr=[3]"}).runs.size() == 1);
}

TEST_CASE("bases merge; later ones win, the file over all", "[base]") {
    const Folder folder;
    folder.file("configs/tasks/recall.yaml", small);
    folder.file("configs/a.yaml",
                "train: {lr: 0.1, steps: 10}\nmodel: {layers: [conv, delta], width: 8}\nmixers: {delta: {heads: 2}}\n");
    folder.file("configs/b.yaml", "base: a.yaml\ntrain: {lr: 0.2}\nmodel: {layers: [delta]}\n");
    const std::string file =
        folder.file("main.yaml", "base: [tasks/recall.yaml, b.yaml]\ntrain: {batch: 7}\nmixers: {delta: {normalise: false}}\n");
    const Experiment experiment = load_experiment(file, {"train.warmup=5"}, fake::catalog(), {folder.file("configs")});
    const RunSpec& run = experiment.runs[0].spec;
    CHECK(run.name == "main");
    CHECK(run.train.lr == 0.2);
    CHECK(run.train.steps == 10);
    CHECK(run.train.batch == 7);
    CHECK(run.train.warmup == 5);
    CHECK(run.model.mixers_by_layer() == Lines{"delta"});
    CHECK(run.model.width == 8);
    const auto& delta = *static_cast<const fake::Delta*>(run.mixers.at("delta").get());
    CHECK(delta.heads == 2);
    CHECK_FALSE(delta.normalise);
    CHECK_THAT(experiment.explain, ContainsSubstring("  lr: 0.2"));
    CHECK_THAT(experiment.explain, ContainsSubstring("# " + folder.file("configs/b.yaml") + ":2\n"));

    const std::string error = error_of([&] {
        load_experiment(folder.file("bad.yaml", "base: b.yaml\n" + small + "model: {widht: 3}\n"), {}, fake::catalog(),
                        {folder.file("configs")});
    });
    CHECK(first_line(error) == folder.file("bad.yaml") + ":6:9: unknown key 'widht' in 'model'; did you mean 'width'?");
}

TEST_CASE("bases that are missing, circular or unreadable", "[base]") {
    const Folder folder;
    const auto load = [&](const std::string& text) {
        return first_line(
            error_of([&] { load_experiment(folder.file("main.yaml", text), {}, fake::catalog(), {folder.file("configs")}); }));
    };
    CHECK(load("base: [no.yaml]\n") == folder.file("main.yaml") + ":1:8: no base 'no.yaml'; looked for " + folder.file("no.yaml") +
                                           ", " + folder.file("configs/no.yaml"));
    folder.file("configs/a.yaml", "base: b.yaml\n");
    folder.file("configs/b.yaml", "seed: 1\nbase: a.yaml\n");
    CHECK(load("base: a.yaml\n") == folder.file("configs/b.yaml") + ":2:7: bases in a circle: " + folder.file("main.yaml") +
                                        " -> " + folder.file("configs/a.yaml") + " -> " + folder.file("configs/b.yaml") + " -> " +
                                        folder.file("configs/a.yaml"));
    CHECK(load("base: main.yaml\n").find("bases in a circle") != std::string::npos);
    CHECK(load("base: {a: b}\n") ==
          folder.file("main.yaml") +
              ":1:7: 'base' expects a file or a list of files, such as [tasks/mqar.yaml, models/small.yaml]");
    CHECK(load("base: [3, [x]]\n").find("no base '3'") != std::string::npos);
    folder.file("configs/broken.yaml", "a: [\n");
    CHECK(load("base: broken.yaml\n") == folder.file("configs/broken.yaml") + ":1:4: this '[' is not closed");
    CHECK(load("- a\n") == folder.file("main.yaml") + ":1:1: a config is a map of keys, such as 'seed: 1'");
    CHECK(error_of([&] { load_experiment("nowhere.yaml", {}, fake::catalog(), {"configs"}); }) ==
          "no config 'nowhere.yaml'; looked for nowhere.yaml, configs/nowhere.yaml");
}

TEST_CASE("explain tells where each value is from", "[experiment]") {
    const std::string text = fake::parse(small + "model: {layers: [conv]}\n", {"seed=3", "train.lr=1e-5"}).explain;
    const auto line = [&](const std::string& key) {
        const auto begin = text.find("\n" + key) + 1;
        return text.substr(begin, text.find('\n', begin) - begin);
    };
    CHECK_THAT(line("seed: 3 "), ContainsSubstring("# <command line>:argument 1"));
    CHECK_THAT(line("  lr: 1.0e-05 "), ContainsSubstring("# <command line>:argument 2"));
    CHECK_THAT(line("  batch: 64 "), ContainsSubstring("# default"));
    CHECK_THAT(line("  layers: [conv] "), ContainsSubstring("# dir/f.yaml:5"));
    CHECK_THAT(line("  depth: 1 "), ContainsSubstring("# as many as model.layers"));
    CHECK_THAT(line("    - length: 32 "), ContainsSubstring("# dir/f.yaml:3"));
    CHECK_THAT(line("  power: 0.01 "), ContainsSubstring("# default"));
    CHECK_THAT(line("      pairs: 4 "), ContainsSubstring("# default"));
    CHECK_THAT(line("      pairs: 8 "), ContainsSubstring("# dir/f.yaml:4"));
}

TEST_CASE("explain tells where a value is from that was written for all or for each", "[experiment]") {
    const std::string text = fake::parse(
                                 "task:\n"
                                 "  name: recall\n"
                                 "  pairs: 2\n"
                                 "  train: [{length: 32}]\n"
                                 "  test: [{length: 32}, {length: 32, pairs: 8}]\n"
                                 "model:\n"
                                 "  layers: [{mixer: conv, kernel: 5},\n"
                                 "           {mixer: conv, kernel: 5}, delta, {mixer: delta, fades: true}]\n"
                                 "mixers: {delta: {heads: 4}}\n")
                                 .explain;
    INFO(text);
    const auto origin = [&](const std::string& key) {
        const auto begin = text.find("\n" + key + " ") + 1, hash = text.find("# ", begin);
        return text.substr(hash + 2, text.find('\n', begin) - hash - 2);
    };
    CHECK(origin("  length: 32") == "dir/f.yaml:4");
    CHECK(origin("    - pairs: 2") == "dir/f.yaml:3");
    CHECK(origin("    kernel: 5") == "dir/f.yaml:7");
    CHECK(origin("    - mixer: delta") == "dir/f.yaml:8");
    CHECK(origin("      fades: true") == "dir/f.yaml:8");
    CHECK(origin("    heads: 4") == "dir/f.yaml:9");
}
