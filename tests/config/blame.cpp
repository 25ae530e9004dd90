// Options that cannot stand together are told with everything else, at the key that a person would change.
#include "errors.h"
#include "fake_catalog.h"

#include "catch.h"

using namespace palimpsest;

namespace {

Catalog strict() {
    Catalog catalog = fake::catalog();
    catalog.check_task = [](const std::string&, const void* options) {
        const auto& recall = *static_cast<const fake::Recall*>(options);
        if (recall.length < 2 * recall.pairs)
            fail(ExitCode::usage, "length {} is too short for {} pairs", recall.length, recall.pairs);
    };
    catalog.check_mixer = [](const std::string& name, const void* options, const ModelSpec& model) {
        if (name == "conv") return;
        const std::int64_t heads = static_cast<const fake::Delta*>(options)->heads;
        if (model.width % heads != 0)
            fail(ExitCode::usage, "mixers.{}.heads: {} heads do not divide model.width {}", name, heads, model.width);
    };
    return catalog;
}

const std::string config =
    "task:\n"
    "  name: recall\n"
    "  length: 16\n"
    "  pairs: 2\n"
    "  train: [{}]\n"
    "  test: [{}, {length: 32}]\n"
    "model: {width: 8, mixer: delta}\n"
    "mixers: {delta: {heads: 2}}\n";

std::string report(const std::string& text, const std::vector<std::string>& overrides = {}) {
    return error_of([&] { parse_experiment("f.yaml", text, overrides, strict(), {}); });
}

}  // namespace

TEST_CASE("unknown keys and options that do not fit are told in one pass, each where it was set", "[experiment]") {
    CHECK(report(config, {"train.stpes=3", "model.width=33", "task.pairs=30"}) ==
          "<command line>:argument 1: error: unknown key 'stpes' in 'train'; did you mean 'steps'?\n"
          "  1 | train.stpes=3\n"
          "    |       ^~~~~\n"
          "<command line>:argument 2: error: mixers.delta.heads: 2 heads do not divide model.width 33\n"
          "  2 | model.width=33\n"
          "    |             ^~\n"
          "<command line>:argument 3: error: 'task.test.1': length 32 is too short for 30 pairs\n"
          "  3 | task.pairs=30\n"
          "    |            ^~\n"
          "<command line>:argument 3: error: 'task.train.0': length 16 is too short for 30 pairs\n"
          "  3 | task.pairs=30\n"
          "    |            ^~\n"
          "4 errors");
}

TEST_CASE("without an override the key that the message names first has the error", "[experiment]") {
    std::string text = config;
    text.replace(text.find("pairs: 2"), 8, "pairs: 9");
    CHECK(report(text) ==
          "f.yaml:3:11: error: 'task.train.0': length 16 is too short for 9 pairs\n"
          "  3 |   length: 16\n"
          "    |           ^~\n"
          "1 error");
    CHECK(first_line(report(config + "train: {}\n", {"task.test.1.length=3"})) ==
          "<command line>:argument 1: 'task.test.1': length 3 is too short for 2 pairs");
    CHECK(first_line(report(config, {"task.test=[{pairs: 9}]"})) ==
          "<command line>:argument 1: 'task.test.0': length 16 is too short for 9 pairs");
    CHECK(first_line(report(config, {"mixers.delta.heads=3"})) ==
          "<command line>:argument 1: mixers.delta.heads: 3 heads do not divide model.width 8");
    // Nothing that the message names was written: the defaults' section has it.
    CHECK(first_line(report("task: {name: recall, pairs: 40, train: [{}], test: [{length: 90}]}\n")) ==
          "f.yaml:1:29: 'task.train.0': length 64 is too short for 40 pairs");
}

TEST_CASE("a swept value that does not fit is blamed in the sweep block", "[sweep]") {
    CHECK(report(config + "sweep: {grid: {task.pairs: [2, 9]}}\n") ==
          "f.yaml:9:32: error: 'task.train.0': length 16 is too short for 9 pairs\n"
          "  9 | sweep: {grid: {task.pairs: [2, 9]}}\n"
          "    |                                ^\n"
          "1 error");
    CHECK(report(config + "sweep: {grid: {task.pairs: [2, 9]}, exclude: [{task.pairs: 9}]}\n").empty());
}

TEST_CASE("what could not be read is not blamed with a default", "[experiment]") {
    CHECK(report(config, {"model.width=abc", "mixers.delta.heads=3"}) ==
          "<command line>:argument 1: error: 'model.width' expects an integer, got 'abc'\n"
          "  1 | model.width=abc\n"
          "    |             ^~~\n"
          "1 error");
}
