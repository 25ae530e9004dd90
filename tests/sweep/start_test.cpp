// The start law: what `check` passes, `run` starts; what `check` refuses, `run` refuses in the same words, before anything is
// created.
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "mixers/mixer.h"
#include "option_words.h"
#include "store/run_lock.h"
#include "sweep/catalog.h"
#include "sweep/execute_pack.h"
#include "sweep/inspect.h"
#include "sweep/plan.h"
#include "task/task.h"
#include "temporary_folder.h"
#include "train/trainer.h"

#include <functional>
#include <optional>
#include <regex>

#include "catch.h"  // last: torch has a CHECK of its own

using namespace palimpsest;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

namespace {

const std::string base = R"(
name: small
task: {name: mqar, vocabulary: 64, length: 24, pairs: 2, train: [{examples: 64}], test: [{examples: 8}]}
model: {width: 8, depth: 1, mixer: linear}
mixers: {linear: {heads: 1}, softmax: {heads: 1}}
train: {steps: 10, batch: 4}
run: {threads: 1}
)";

using Words = std::vector<std::string>;

// One key and two values: there are two examples, and all splits hold both.
const Words two_examples = {"task.vocabulary=4", "task.length=4", "task.pairs=1"};

// Nothing where the config itself is refused: that is for other tests.
std::optional<Experiment> parsed(const Words& overrides) {
    try {
        return parse_experiment("small.yaml", base, overrides, registry_catalog(), {});
    } catch (const Error&) {
        return std::nullopt;
    }
}

// The memory that is free changes from one moment to the next: its number is left out.
std::string refusal(const std::function<void()>& act) {
    static const std::regex free(" and [0-9.]+ [A-Za-z]+ can be had here");
    try {
        act();
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::usage);
        return std::regex_replace(error.what(), free, " and … can be had here");
    }
    return "";
}

std::string checked(const Experiment& plan) {
    return refusal([&] { static_cast<void>(inspect_runs(plan.runs, {plan.lanes, {}})); });
}

// What `work` and `resume` do, which find out by themselves.
std::string started(const Experiment& plan, const std::string& results) {
    return refusal([&] {
        ExecuteOptions options;
        options.results = results;
        static_cast<void>(
            execute_pack(plan, {{&plan.runs[0], planned_folders(results, plan).front()}}, "", "test", options, StopRequest()));
    });
}

// Values that might not go with the others.
Words values_of(const Option& option) {
    if (option.type == "integer") return {"0", "1", "2", "3", "17", "1000000000000"};
    if (option.type == "number") return {"0.3", "1", "2", "1e30"};
    if (option.type == "range") return {"0..3", "5"};
    return option_words(option);
}

struct Tally {
    int refused = 0, begun = 0;
};

// Every option of a schema at each of its values, one at a time, beside `more`.
void hold_law(const AnySchema& schema, const std::string& section, const Words& more, Tally& tally) {
    for (const Option& option : schema.options()) {
        const std::string path = section + "." + option.name;
        if (option.nested != nullptr) continue;
        for (const std::string& value : values_of(option)) {
            Words overrides = more;
            overrides.push_back(path + "=" + value);
            const std::optional<Experiment> plan = parsed(overrides);
            if (!plan) continue;
            INFO(join(overrides, " "));
            const std::string problem = checked(*plan);
            const TemporaryFolder folder;
            if (!problem.empty()) {
                ++tally.refused;
                CHECK(started(*plan, folder.path) == problem);
                CHECK(list_folders(folder.path).empty());
                continue;
            }
            ++tally.begun;
            const RunSpec& spec = plan->runs[0].spec;
            const std::atomic<bool> stop{true};
            Lane lane;
            lane.values = lane_values(spec);
            CHECK_NOTHROW(Trainer(spec, {lane}).run(stop));  // one step, the evaluation of one step where it is due
        }
    }
}

}  // namespace

TEST_CASE("what is passed starts, whatever the mixer's options", "[start]") {
    Tally tally;
    for (const std::string& mixer : mixer_names()) {
        Words chosen = {"model.mixer=" + mixer};
        if (get_mixer(mixer).facts().needs_positions) chosen.push_back("model.positions=rotary");
        hold_law(get_mixer(mixer).schema(), "mixers." + mixer, chosen, tally);
    }
    CHECK(tally.begun > 100);
    CHECK(tally.refused >= 3);  // most sizes that nothing could hold are refused with the config
}

TEST_CASE("what is passed starts, whatever the task's options", "[start]") {
    Tally tally;
    for (const std::string& task : task_names()) {
        const std::string segments = fmt::format("task={{name: {}, vocabulary: 64, train: [{{}}], test: [{{examples: 8}}]}}", task);
        hold_law(get_task(task).schema(), "task", {segments}, tally);
    }
    CHECK(tally.begun > 30);  // most of what does not fit is refused with the config
}

TEST_CASE("what is passed starts, whatever the options of the sections", "[start]") {
    Tally tally;
    for (const auto& [name, schema] : {std::pair<const char*, const AnySchema*>{"model", &model_schema()},
                                       {"train", &train_schema()},
                                       {"data", &data_schema()},
                                       {"eval", &eval_schema()},
                                       {"run", &runtime_schema()}}) {
        hold_law(*schema, name, {}, tally);
        hold_law(*schema, name, {"model.mixer=softmax", "model.positions=rotary", "data.mode=fixed", "train.epochs=2"}, tally);
    }
    CHECK(tally.begun > 60);
    CHECK(tally.refused >= 2);
}

TEST_CASE("each kind of refusal, in its words", "[start]") {
    const auto said = [](const Words& overrides) {
        const std::optional<Experiment> plan = parsed(overrides);
        REQUIRE(plan);
        const std::string problem = checked(*plan);
        const TemporaryFolder folder;
        CHECK(started(*plan, folder.path) == problem);
        CHECK(list_folders(folder.path).empty());
        // Each line at its place, as every error of a config.
        static const std::regex place("(^|\n)(small\\.yaml:[0-9]+:[0-9]+|<command line>:argument [0-9]+): error: ");
        CHECK(std::distance(std::sregex_iterator(problem.begin(), problem.end(), place), std::sregex_iterator()) ==
              std::count(problem.begin(), problem.end(), '\n') + 1);
        return std::regex_replace(problem, place, "$1");
    };
    CHECK_THAT(checked(*parsed({"train.lr=0.1", "run.threads=100000"})),
               StartsWith("<command line>:argument 2: error: run.threads: 100000 on "));
    CHECK_THAT(checked(*parsed({"model.width=1000000", "model.depth=1000"})),
               StartsWith("small.yaml:4:1: error: it takes at least "));
    CHECK_THAT(checked(*parsed({"train.batch=1000000000"})), StartsWith("<command line>:argument 1: error: it takes at least "));
    CHECK_THAT(checked(*parsed(two_examples)), StartsWith("small.yaml:3:1: error: 40 of the first 40 training examples "));
    CHECK_THAT(said({"run.threads=100000"}),
               StartsWith("run.threads: 100000 on a machine of ") && EndsWith(" are possible here (0 takes all cores)"));
    CHECK(said({"run.backend=fused"}) == "run.backend: fused is not built yet; use auto, reference or chunk");
    CHECK(said(two_examples) ==
          "40 of the first 40 training examples of task 'mqar' are valid or test examples too. The task has too few different "
          "examples to keep "
          "them apart: give it a larger vocabulary, more pairs or a greater length, or allow it with data.check_overlap: false");
    CHECK_THAT(said({"model.width=1000000", "model.depth=1000"}),
               StartsWith("it takes at least ") && ContainsSubstring(" for weights, gradients and moments (model, mixers)"));
    CHECK_THAT(said({"train.batch=1000000000"}),
               StartsWith("it takes at least ") && ContainsSubstring(" for a training batch (train.batch, task.train, model)"));
    CHECK_THAT(said({"task.test.0.examples=4000000000", "task.pairs=8", "task.length=48"}),
               ContainsSubstring(" for the questions (examples of task.valid and task.test)"));
    CHECK_THAT(said({"model.mixer=base_conv", "mixers.base_conv.kernel=60000", "model.width=1000000", "model.depth=20"}),
               StartsWith("it takes at least "));
    // All that does not depend on each other is said at once.
    CHECK_THAT(
        said({"run.threads=100000", "run.backend=fused"}),
        StartsWith("run.threads: 100000 ") && EndsWith("\nrun.backend: fused is not built yet; use auto, reference or chunk"));
    CHECK(said({"train.steps=268435456", "train.batch=1000000"}) ==
          "train.steps 268435456 x train.batch 1000000 are more than the 1099511627776 fresh examples that a run can tell apart; "
          "lower one of them");
}

TEST_CASE("a run under way is not searched for overlaps again, and one in other hands has no problem", "[start]") {
    const std::optional<Experiment> plan = parsed(two_examples);
    REQUIRE(plan);
    const TemporaryFolder folder;
    const std::string run = folder / "run";
    const InspectOptions options{0, {run}};
    const auto problem = [&](const Experiment& of) { return inspect({&of.runs[0]}, options).front().problem; };
    CHECK_THAT(problem(*plan), ContainsSubstring("are valid or test examples too"));
    make_folders(run + "/checkpoints");
    write_file_atomic(run + "/checkpoints/step-000000005.ckpt", "");
    CHECK(problem(*plan).empty());
    const std::optional<Experiment> broken = parsed({"run.backend=fused"});
    CHECK_THAT(problem(*broken), StartsWith("<command line>:argument 1: error: run.backend: fused"));
    RunFolder other(run);
    RunLock other_lock(other.path());
    CHECK(problem(*broken).empty());
    other_lock.release();
}

TEST_CASE("one lane's overlap leaves the others of its pack alone", "[start]") {
    // Of these seeds some draw a test question for training, and some do not.
    const Words few = {"task.length=8", "task.pairs=1", "task.valid=[{length: 4, examples: 1}]", "task.test.0.examples=24",
                       "train.batch=8"};
    const Experiment plan = parse_experiment(
        "small.yaml", base + "sweep: {grid: {seed: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}}\n", few, registry_catalog(), {});
    const TemporaryFolder folder;
    std::vector<PackedRun> pack;
    const std::vector<std::string> folders = planned_folders(folder.path, plan);
    for (std::size_t i = 0; i < folders.size(); ++i) pack.push_back({&plan.runs[i], folders[i]});
    ExecuteOptions options;
    options.results = folder.path;
    const std::vector<RunOutcome> outcomes = execute_pack(plan, pack, "", "test", options, StopRequest());
    int finished = 0, refused = 0;
    for (const RunOutcome& outcome : outcomes) {
        if (outcome.state == RunState::finished) {
            ++finished;
            continue;
        }
        ++refused;
        CHECK(outcome.state == RunState::failed);
        CHECK_THAT(outcome.message, ContainsSubstring("training examples of task 'mqar' are valid or test examples too"));
        CHECK_FALSE(folder_exists(outcome.folder));
    }
    CHECK(finished > 0);
    CHECK(refused > 0);
}
