// What a config and its bases may be: files, pipes, many that share one; and what is too much.
#include "errors.h"
#include "fake_catalog.h"
#include "temporary_folder.h"

#include <fstream>
#include <sys/stat.h>
#include <thread>

#include "catch.h"

using namespace palimpsest;
using fake::small;

namespace {

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

Experiment load(const std::string& path) { return load_experiment(path, {}, fake::catalog(), {}); }

}  // namespace

TEST_CASE("a config and its bases may be pipes", "[base]") {
    const TemporaryFolder folder;
    const std::string pipe = folder / "pipe", base = folder / "base";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    REQUIRE(::mkfifo(base.c_str(), 0600) == 0);
    // Each is read once, though two name the base: a pipe gives its text once.
    std::thread writer([&] {
        write(pipe, small + "base: [base, other.yaml]\n");
        write(base, "train: {batch: 7, steps: 3}\n");
    });
    write(folder / "other.yaml", "base: base\ntrain: {steps: 5}\n");
    const Experiment experiment = load(pipe);
    writer.join();
    CHECK(experiment.name == "pipe");
    CHECK(experiment.runs.front().spec.train.batch == 7);
    CHECK(experiment.runs.front().spec.train.steps == 5);
    CHECK(error_of([&] { load(folder.path); }) == "no config '" + folder.path + "'; looked for " + folder.path);
}

TEST_CASE("bases that share bases are read once", "[base]") {
    const TemporaryFolder folder;
    write(folder / "b0.yaml", "train: {batch: 9}\n");
    for (int i = 1; i < 30; ++i)
        write(folder / fmt::format("b{}.yaml", i), fmt::format("base: [b{}.yaml, ./b{}.yaml]\nseed: {}\n", i - 1, i - 1, i));
    write(folder / "main.yaml", small + "base: b29.yaml\n");
    const Experiment experiment = load(folder / "main.yaml");
    CHECK(experiment.runs.front().spec.train.batch == 9);
    CHECK(experiment.runs.front().spec.seed == 29);
}

TEST_CASE("bases without end are an error with its place", "[base]") {
    const TemporaryFolder folder;
    for (int i = 1; i < 100; ++i) write(folder / fmt::format("b{}.yaml", i), fmt::format("base: b{}.yaml\n", i - 1));
    write(folder / "b0.yaml", small);
    CHECK(first_line(error_of([&] { load(folder / "b99.yaml"); })) ==
          folder / "b35.yaml" + ":1:7: bases on bases, more than 64 files deep");
    CHECK_NOTHROW(load(folder / "b60.yaml"));
    CHECK(error_of([] { load("/dev/zero"); }) == "'/dev/zero' is larger than 16.0 MiB: that is no config");
}

TEST_CASE("maps of many keys merge", "[base]") {
    const TemporaryFolder folder;
    std::string many;
    for (int i = 0; i < 40'000; ++i) many += fmt::format("k{}: 1\n", i);
    write(folder / "many.yaml", many);
    write(folder / "main.yaml", "base: many.yaml\n" + many);
    CHECK_THAT(error_of([&] { load(folder / "main.yaml"); }), ContainsSubstring(" errors; these are the first 100"));
}

TEST_CASE("an argument's key has a last part", "[base]") {
    std::string path = "a";
    for (int i = 0; i < 100'000; ++i) path += ".a";
    const std::string report = error_of([&] { fake::parse(small, {path + "=1"}); });
    CHECK_THAT(report, ContainsSubstring("<command line>:argument 1: error: a key of more than 64 parts\n"));
    CHECK(report.size() < 1'000);
}

TEST_CASE("null on the command line is nothing", "[base]") {
    CHECK(first_line(error_of([&] { fake::parse(small, {"model.mixer=null"}); })) ==
          "<command line>:argument 1: 'model.mixer' expects text, got nothing; quote it if the word itself is meant");
    CHECK(first_line(error_of([&] { fake::parse(small, {"train.lr=~"}); })) ==
          "<command line>:argument 1: 'train.lr' expects a number, got nothing");
}
