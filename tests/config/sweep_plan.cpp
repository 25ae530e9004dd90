#include "errors.h"
#include "fake_catalog.h"

#include <cmath>
#include <set>

#include "catch.h"

using namespace palimpsest;
using fake::small;

namespace {

Experiment plan(const std::string& sweep, const std::vector<std::string>& overrides = {}) {
    return fake::parse(small + "sweep: " + sweep + "\n", overrides);
}

using Lines = std::vector<std::string>;

// One line a run: its values in order, "delta 0.001 32".
Lines values(const Experiment& experiment) {
    Lines lines;
    for (const PlannedRun& run : experiment.runs) {
        std::string line;
        for (const auto& [key, value] : run.varied) line += (line.empty() ? "" : " ") + value;
        lines.push_back(line);
    }
    return lines;
}

// First lines of all errors.
Lines errors(const std::string& sweep, const std::vector<std::string>& overrides = {}) {
    Lines lines;
    const std::string report = error_of([&] { plan(sweep, overrides); });
    for (std::size_t at = 0; at < report.size();) {
        const std::size_t end = std::min(report.find('\n', at), report.size());
        if (const std::string line = report.substr(at, end - at); line.find(": error: ") != std::string::npos)
            lines.push_back(first_line(line));
        at = end + 1;
    }
    return lines;
}

std::vector<double> drawn(const std::string& distribution, int samples = 200, int seed = 0) {
    const Experiment experiment = plan("{random: {samples: " + std::to_string(samples) + ", seed: " + std::to_string(seed) +
                                       ", draw: {train.lr: " + distribution + "}}}");
    std::vector<double> out;
    for (const PlannedRun& run : experiment.runs) out.push_back(run.spec.train.lr);
    return out;
}

}  // namespace

TEST_CASE("the keys of a zip advance together", "[sweep]") {
    const Experiment experiment = plan("{zip: {train.lr: [1e-3, 3e-3, 1e-2], train.batch: [32, 64, 128]}}");
    CHECK(values(experiment) == Lines{"0.001 32", "0.003 64", "0.01 128"});
    CHECK(experiment.runs[1].spec.train.batch == 64);
    CHECK(experiment.runs[1].varied[1].first == "train.batch");
    CHECK(errors("{zip: {train.lr: [1e-3, 3e-3], train.batch: [32]}}") ==
          Lines{"dir/f.yaml:5:52: 'sweep.zip.train.batch' has 1 value, but 'sweep.zip.train.lr' has 2 (dir/f.yaml:5:25); the keys "
                "of a zip "
                "advance together"});
    CHECK(errors("{zip: {train.lr: [1, fast], train.batch: 3, name: [a, b]}}") ==
          Lines{"dir/f.yaml:5:29: 'train.lr' expects a number, got 'fast'",
                "dir/f.yaml:5:49: 'sweep.zip.train.batch' expects a list of values", "dir/f.yaml:5:52: 'name' cannot be swept"});
}

TEST_CASE("blocks multiply in the file's order, the last one fastest", "[sweep]") {
    CHECK(values(plan("{grid: {model.mixer: [softmax, delta]}, zip: {train.lr: [1, 2], train.batch: [8, 16]}, seeds: 2}")) ==
          Lines{"softmax 1.0 8 1", "softmax 1.0 8 2", "softmax 2.0 16 1", "softmax 2.0 16 2", "delta 1.0 8 1", "delta 1.0 8 2",
                "delta 2.0 16 1", "delta 2.0 16 2"});
    CHECK(values(plan("{zip: {train.lr: [1, 2], train.batch: [8, 16]}, grid: {model.mixer: [softmax, delta]}}")) ==
          Lines{"1.0 8 softmax", "1.0 8 delta", "2.0 16 softmax", "2.0 16 delta"});
    // Each mixer gets the same draws.
    const Experiment paired =
        plan("{grid: {model.mixer: [softmax, delta]}, random: {samples: 3, draw: {train.lr: {uniform: [1, 2]}}}}");
    REQUIRE(paired.runs.size() == 6);
    for (std::size_t i = 0; i < 3; ++i) CHECK(paired.runs[i].spec.train.lr == paired.runs[i + 3].spec.train.lr);
}

TEST_CASE("a key stands in one block", "[sweep]") {
    CHECK(errors("{grid: {train.lr: [1, 2]}, zip: {train.lr: [1, 2]}}") ==
          Lines{"dir/f.yaml:5:41: 'train.lr' is in 'sweep.zip' and in 'sweep.grid' (dir/f.yaml:5:16)"});
    CHECK(errors("{grid: {train.lr: [1, 2]}, random: {samples: 2, draw: {train: {choice: [{lr: 1}]}}}}") ==
          Lines{"dir/f.yaml:5:63: 'train' would overwrite 'train.lr', which is swept too; write it first"});
    CHECK(errors("{random: {samples: 2, draw: {seed: {integer: [1, 9]}}}, seeds: 2}") ==
          Lines{"dir/f.yaml:5:71: give either 'sweep.seeds' or 'seed' in 'sweep.random.draw'"});
}

// From the published Philox4x32-10 and FNV-1a, written a second time in Python.
TEST_CASE("draws are the same on every machine", "[sweep]") {
    CHECK(
        values(plan("{random: {samples: 4, draw: {train.lr: {log_uniform: [1e-4, 1e-2]}, train.beta1: {uniform: [0.8, 0.99]}, "
                    "train.batch: {integer: [8, 128]}, model.mixer: {choice: [softmax, delta, conv]}}}}")) ==
        Lines{"0.000737 0.8125 55 delta", "0.000109 0.984 113 softmax", "0.000396 0.9436 128 softmax", "0.00171 0.9177 92 delta"});
    CHECK(values(plan("{random: {samples: 2, seed: 7, draw: {train.lr: {log_uniform: [1e-4, 1e-2]}}}}")) ==
          Lines{"0.000585", "0.000556"});
}

TEST_CASE("neither a further key nor further samples shift a draw", "[sweep]") {
    const std::vector<double> five = drawn("{uniform: [1, 2]}", 5), nine = drawn("{uniform: [1, 2]}", 9);
    CHECK(std::vector<double>(nine.begin(), nine.begin() + 5) == five);
    const Experiment more = plan("{random: {samples: 5, draw: {model.width: {integer: [8, 64]}, train.lr: {uniform: [1, 2]}}}}");
    for (std::size_t i = 0; i < 5; ++i) CHECK(more.runs[i].spec.train.lr == five[i]);
    CHECK(drawn("{uniform: [1, 2]}", 5, 1) != five);
    CHECK(
        plan("{random: {samples: 2, draw: {train.lr: {uniform: [1, 2]}, train.eps: {uniform: [1, 2]}}}}").runs[0].spec.train.eps !=
        five[0]);
}

TEST_CASE("draws keep to their distribution and to few digits", "[sweep]") {
    const auto mean = [](const std::vector<double>& list, double (*of)(double)) {
        double sum = 0;
        for (const double value : list) sum += of(value);
        return sum / static_cast<double>(list.size());
    };
    const auto same = [](double x) { return x; };
    const std::vector<double> uniform = drawn("{uniform: [100, 101]}", 2000);
    for (const double lr : uniform) {
        CHECK(lr >= 100);
        CHECK(lr <= 101);
        CHECK(fmt::format("{}", lr).size() <= 7);  // thousandths
    }
    CHECK(mean(uniform, same) == Approx(100.5).margin(0.03));  // four and a half standard errors
    const std::vector<double> log_uniform = drawn("{log_uniform: [1e-4, 1]}", 2000);
    for (const double lr : log_uniform) {
        CHECK(lr >= 1e-4);
        CHECK(lr <= 1);
        CHECK(fmt::format("{:.2e}", lr) == fmt::format("{:.2e}", std::stod(fmt::format("{:.2e}", lr))));
        CHECK(std::stod(fmt::format("{:.2e}", lr)) == lr);
    }
    CHECK(mean(log_uniform, std::log10) == Approx(-2).margin(0.12));
    for (const double lr : drawn("{log_uniform: [1.2345e-4, 1.2399e-4]}", 20)) {  // rounding does not leave the range
        CHECK(lr >= 1.2345e-4);
        CHECK(lr <= 1.2399e-4);
    }
    std::set<double> integers, chosen;
    for (const double lr : drawn("{integer: [1, 6]}")) integers.insert(lr);
    CHECK(integers == std::set<double>{1, 2, 3, 4, 5, 6});
    for (const double lr : drawn("{choice: [1e-3, 0.5]}")) chosen.insert(lr);
    CHECK(chosen == std::set<double>{0.001, 0.5});
    CHECK(values(plan("{random: {samples: 1, draw: {train.lr: {uniform: [5000, 90000]}}}}")).front().find(".0") !=
          std::string::npos);
}

TEST_CASE("a whole task can be drawn, and goes by its name", "[sweep]") {
    const Experiment experiment = fake::parse(
        "sweep:\n  random:\n    samples: 8\n    draw:\n      task:\n        choice:\n          - {name: recall, train: [{}], test: "
        "[{}]}\n"
        "          - {name: update, train: [{}], test: [{overwrites: 2}]}\n");
    CHECK(experiment.runs.size() == 2);
    for (const PlannedRun& run : experiment.runs)
        CHECK(run.varied[0] == std::pair<std::string, std::string>("task", run.spec.task.name));
    REQUIRE(experiment.notes.size() == 1);
    CHECK_THAT(experiment.notes[0], ContainsSubstring("6 of 8 runs repeat another and were merged"));
}

TEST_CASE("what a random block may say", "[sweep]") {
    const std::string draw = "'sweep.random.draw.train.lr";
    const struct {
        const char* block;
        Lines messages;
    } cases[] = {
        {"{random: 3}",
         {"5:17: 'sweep.random' expects a map, such as {samples: 20, draw: {train.lr: {log_uniform: [1e-4, 1e-2]}}}"}},
        {"{random: {}}",
         {"5:17: 'sweep.random' has no 'draw'; write draw: {train.lr: {log_uniform: [1e-4, 1e-2]}}",
          "5:17: 'sweep.random' has no 'samples'; write how many are drawn, such as samples: 20"}},
        {"{random: {sample: 3, draw: {}}}",
         {"5:17: 'sweep.random' has no 'samples'; write how many are drawn, such as samples: 20",
          "5:18: unknown key 'sample' in 'sweep.random'; did you mean 'samples'?", "5:35: 'sweep.random.draw' has no keys"}},
        {"{random: {samples: 0, seed: -1, draw: {train.lr: {uniform: [1, 2]}}}}",
         {"5:27: 'sweep.random.samples' must be 1 to 10000, got 0", "5:36: 'sweep.random.seed' must be at least 0, got -1"}},
        {"{random: {samples: 2, draw: {train.lr: [1, 2]}}}",
         {"5:47: " + draw +
          "' expects one distribution, such as {log_uniform: [1e-4, 1e-2]}; there are: uniform, log_uniform, integer, choice"}},
        {"{random: {samples: 2, draw: {train.lr: {lognormal: [1, 2]}}}}",
         {"5:48: unknown distribution 'lognormal' in " + draw + "'; there are: uniform, log_uniform, integer, choice"}},
        {"{random: {samples: 2, draw: {train.lr: {loguniform: [1, 2]}}}}",
         {"5:48: unknown distribution 'loguniform' in " + draw + "'; did you mean 'log_uniform'?"}},
        {"{random: {samples: 2, draw: {train.lr: {uniform: 3}}}}",
         {"5:57: " + draw + ".uniform' expects its two ends: [low, high]"}},
        {"{random: {samples: 2, draw: {train.lr: {uniform: [2, 1]}}}}",
         {"5:57: " + draw + ".uniform' expects the lower end first, then a higher one"}},
        {"{random: {samples: 2, draw: {train.lr: {log_uniform: [0, x]}}}}",
         {"5:62: " + draw + ".log_uniform.0' must be above 0, got 0",
          "5:65: " + draw + ".log_uniform.1' expects a number, got 'x'"}},
        {"{random: {samples: 2, draw: {train.lr: {integer: [1.5, 3]}}}}",
         {"5:58: " + draw + ".integer.0' expects an integer, got '1.5'"}},
        {"{random: {samples: 2, draw: {train.lr: {integer: [0, 9000000000]}}}}",
         {"5:57: " + draw + ".integer' spans more than 2^32 values"}},
        {"{random: {samples: 2, draw: {train.lr: {choice: []}}}}", {"5:56: " + draw + ".choice' expects a list of values"}},
        // What is drawn is held to the schema, at the place of its distribution.
        {"{random: {samples: 1, draw: {model.widht: {choice: [8]}, model.depth: {choice: [two]}}}}",
         {"5:43: unknown key 'widht' in 'model'; did you mean 'width'?", "5:88: 'model.depth' expects an integer, got 'two'"}},
        {"{random: {samples: 3, draw: {model.width: {integer: [-1, 0]}}}, grid: {train.lr: [fast]}}",
         {"5:60: 'model.width' must be 1 to 1048576, got -1", "5:60: 'model.width' must be 1 to 1048576, got 0",
          "5:90: 'train.lr' expects a number, got 'fast'"}},
    };
    for (const auto& [block, messages] : cases) {
        INFO(block);
        Lines expected;
        for (const std::string& message : messages) expected.push_back("dir/f.yaml:" + message);
        CHECK(errors(block) == expected);
    }
}

TEST_CASE("excluded are the points whose resolved values match a whole entry", "[sweep]") {
    const std::string grid = "grid: {model.mixer: [softmax, delta], train.lr: [1e-3, 1e-2, 3e-2]}";
    const Experiment one = plan("{" + grid + ", exclude: [{model.mixer: softmax, train.lr: 0.01}]}");
    CHECK(values(one) == Lines{"softmax 0.001", "softmax 0.03", "delta 0.001", "delta 0.01", "delta 0.03"});
    CHECK(one.notes == Lines{"1 of 6 runs left out by sweep.exclude"});
    CHECK(values(plan("{" + grid +
                      ", exclude: [{model.mixer: softmax, train.lr: [1e-2, 30e-3]}, {model.mixer: delta, train.lr: 1e-3}]}")) ==
          Lines{"softmax 0.001", "delta 0.01", "delta 0.03"});
    // Seeds and keys that nothing sweeps are resolved too.
    CHECK(values(plan("{" + grid +
                      ", seeds: 2, exclude: [{train.lr: [1e-2, 3e-2]}, {seed: 2, mixers.delta.heads: 1, model.mixer: delta}]}")) ==
          Lines{"softmax 0.001 1", "softmax 0.001 2", "delta 0.001 1"});
    const Experiment none = plan("{" + grid + ", exclude: [{model.mixer: sofmtax}, {mixers.conv.kernel: 3}]}");
    CHECK(none.runs.size() == 6);
    CHECK(none.notes == Lines{"dir/f.yaml:5:88: this entry of sweep.exclude matches no run",
                              "dir/f.yaml:5:112: this entry of sweep.exclude matches no run"});
}

TEST_CASE("lists and whole sections are excluded by what they are", "[sweep]") {
    CHECK(values(plan("{grid: {model.layers: [[conv, delta], [delta], [softmax]]}, exclude: [{model.layers: [conv, delta]}, "
                      "{model.layers: [[softmax]]}]}")) == Lines{"[delta]"});
    const Experiment tasks = fake::parse(
        "sweep:\n  grid:\n    task: [{name: recall, train: [{}], test: [{}]}, {name: update, train: [{}], test: [{}]}]\n"
        "    model.mixer: [delta, softmax]\n  exclude: [{task: update, model.mixer: softmax}]\n");
    CHECK(values(tasks) == Lines{"recall delta", "recall softmax", "update delta"});
}

TEST_CASE("an excluded point need not be right", "[sweep]") {
    const std::string grid = "{grid: {model.layers: [[delta], [delta, conv]], train.lr: [1e-3, -1]}, exclude: ";
    CHECK(errors(grid + "[]}") == Lines{"dir/f.yaml:5:73: 'train.lr' must be above 0, got -1"});
    // The default, 0.001, stands where -1 could not be read: the point of -1 is not what is excluded.
    CHECK(errors(grid + "[{train.lr: 1e-3}]}") == Lines{"dir/f.yaml:5:73: 'train.lr' must be above 0, got -1"});
    fake::parse(
        "sweep:\n  grid:\n    task: [{name: recall, train: [{}], test: [{}]}, {name: update, train: [{}], test: [{}]}]\n"
        "    mixers.softmax.heads: [1, 2]\n  exclude: [{task.name: update}]\n");
    Catalog catalog = fake::catalog();
    catalog.check_task = [](const std::string&, const void* options) {
        if (static_cast<const fake::Recall*>(options)->pairs > 16) fail(ExitCode::usage, "too many pairs");
    };
    const auto parse = [&](const std::string& exclude) {
        return parse_experiment("f.yaml", small + "sweep: {grid: {task.test.1.pairs: [8, 32]}, exclude: " + exclude + "}\n", {},
                                catalog, {});
    };
    CHECK_THAT(error_of([&] { parse("[]"); }), ContainsSubstring("too many pairs"));
    CHECK(parse("[{task.test.1.pairs: 32}]").runs.size() == 1);
}

TEST_CASE("what an exclusion may say", "[sweep]") {
    const std::string grid = "{grid: {train.lr: [1, 2]}, exclude: ",
                      form = "'sweep.exclude' expects a list of maps, such as [{model.mixer: softmax, train.lr: 1e-2}]";
    CHECK(errors(grid + "{train.lr: 1}}") == Lines{"dir/f.yaml:5:44: " + form});
    CHECK(errors(grid + "[{}, train.lr]}") == Lines{"dir/f.yaml:5:45: " + form, "dir/f.yaml:5:49: " + form});
    CHECK(errors(grid + "[{train.l: 1}]}") ==
          Lines{"dir/f.yaml:5:46: 'sweep.exclude': no run has the key 'train.l'; did you mean 'train.lr'?"});
    CHECK(errors(grid + "[{mixers.delta.haeds: 1}]}") ==
          Lines{"dir/f.yaml:5:46: 'sweep.exclude': no run has the key 'mixers.delta.haeds'; did you mean 'mixers.delta.heads'?"});
    CHECK(errors(grid + "[{train.lr: 1}, {train.lr: 2}]}") == Lines{"dir/f.yaml:5:45: 'sweep.exclude' leaves no run"});
}

TEST_CASE("a cap keeps the first runs of the plan, and says so", "[sweep]") {
    const Experiment capped = plan("{grid: {model.mixer: [softmax, delta], mixers.delta.heads: [1, 2]}, seeds: 2, cap: 3}");
    CHECK(values(capped) == Lines{"softmax 1", "softmax 2", "delta 1 1"});  // softmax tells no heads of delta
    REQUIRE(capped.notes.size() == 2);
    CHECK(capped.notes[1] == "sweep.cap: the first 3 of 6 runs; 3 left out");
    CHECK(plan("{seeds: 3, cap: 3}").notes.empty());
}

TEST_CASE("lanes are the planner's choice unless given", "[sweep]") {
    CHECK(plan("{seeds: 2}").lanes == 0);
    CHECK(plan("{seeds: 2, lanes: auto}").lanes == 0);
    const Experiment four = plan("{seeds: 2, lanes: 4}");
    CHECK(four.lanes == 4);
    CHECK(four.runs[0].spec.id == plan("{seeds: 2}").runs[0].spec.id);
    CHECK(plan("{seeds: 2}", {"sweep.lanes=2"}).lanes == 2);
}

TEST_CASE("every block can be set on the command line", "[sweep]") {
    CHECK(values(plan("{seeds: 1}", {"sweep.zip.train.lr=[1, 2]", "sweep.zip.train.batch=[8, 16]"})) == Lines{"1.0 8", "2.0 16"});
    CHECK(values(plan("{seeds: 1}", {"sweep.random.samples=2", "sweep.random.draw.train.batch={integer: [5, 5000]}"})).size() == 2);
    CHECK(values(plan("{grid: {train.lr: [1, 2, 3]}, exclude: [{train.lr: 1}]}", {"sweep.exclude.0.train.lr=3"})) ==
          Lines{"1.0", "2.0"});
    CHECK(
        errors("{random: {samples: 2, draw: {train.lr: {uniform: [1, 2]}}}}", {"train.lr=3"}) ==
        Lines{
            "<command line>:argument 1: 'train.lr' has no effect: the sweep sets 'train.lr'; set sweep.random.draw.train.lr={…}"});
}

TEST_CASE("an integer that is drawn with a fraction is one error, which says what to write", "[sweep]") {
    CHECK(
        errors("{random: {samples: 50, draw: {train.batch: {uniform: [16, 64]}, task.pairs: {log_uniform: [1, 9]}, train.lr: "
               "{uniform: [1, 2]}}}}") ==
        Lines{
            "dir/f.yaml:5:38: 'train.batch' is an integer, and uniform draws numbers with a fraction; write {integer: [low, high]}",
            "dir/f.yaml:5:72: 'task.pairs' is an integer, and log_uniform draws numbers with a fraction; write {integer: [low, "
            "high]}"});
    CHECK(errors("{random: {samples: 2, draw: {train.lr: {uniform: [-1e308, 1e308]}}}}") ==
          Lines{"dir/f.yaml:5:57: 'sweep.random.draw.train.lr.uniform' spans more than a number can hold"});
}

TEST_CASE("seeds end where integers end", "[sweep]") {
    const auto report = [](const std::string& seed) {
        return first_line(error_of([&] { fake::parse(small + "seed: " + seed + "\nsweep: {seeds: 3}\n"); }));
    };
    CHECK(report("9223372036854775807") ==
          "dir/f.yaml:6:16: 'sweep.seeds' counts up from seed 9223372036854775807, past the largest integer; lower 'seed'");
    CHECK(report("9223372036854775806") != "");
    CHECK(report("9223372036854775805").empty());
}

TEST_CASE("a sweep of a thousand million runs is refused at once, with what else is wrong", "[sweep]") {
    std::string values = "1";
    for (int i = 2; i <= 1000; ++i) values += fmt::format(", {}", i);
    const std::string grid =
        fmt::format("{{grid: {{train.lr: [{0}], train.batch: [{0}], train.steps: [{0}]}}, seeds: 9223372036854775807}}", values);
    CHECK(errors(grid) == Lines{"dir/f.yaml:5:8: more than 10000 runs"});
    CHECK(errors(grid + "\nmodel: {widht: 3}") ==
          Lines{"dir/f.yaml:5:8: more than 10000 runs", "dir/f.yaml:6:9: unknown key 'widht' in 'model'; did you mean 'width'?"});
    CHECK(errors("{seeds: 1000000000000}") == Lines{"dir/f.yaml:5:8: more than 10000 runs"});
    CHECK(errors("{random: {samples: 1000000000, draw: {train.lr: {uniform: [1, 2]}}}}") ==
          Lines{"dir/f.yaml:5:27: 'sweep.random.samples' must be 1 to 10000, got 1000000000"});
}

TEST_CASE("one run of a plan is chosen by its number or its id", "[sweep]") {
    const std::string text = small + "sweep: {grid: {train.lr: [1e-3, 1e-2]}, seeds: 2}\n";
    const auto only = [&](const std::string& word) { return parse_experiment("f.yaml", text, {}, fake::catalog(), {}, word); };
    CHECK(only("").chosen == 0);
    const Experiment third = only("3");
    CHECK(third.chosen == 2);
    CHECK(third.runs.size() == 4);
    CHECK_THAT(third.explain, ContainsSubstring("lr: 0.01"));
    CHECK_THAT(third.explain, ContainsSubstring("# f.yaml:5"));
    CHECK(only(third.runs[3].spec.id.substr(0, 8)).chosen == 3);
    CHECK(error_of([&] { only("5"); }) == "--only 5: the plan has the runs 1 to 4; `--dry-run` lists them");
    CHECK(error_of([&] { only("0"); }) == "--only 0: the plan has the runs 1 to 4; `--dry-run` lists them");
    for (const char* word : {"x", "1f", "ffffffff", "123456789012345678901234567890"})
        CHECK(error_of([&] { only(word); }) ==
              fmt::format(
                  "--only {}: no run of the plan; write its number, or at least six digits of its id (`--dry-run` lists them)",
                  word));
}
