// A run's file when the run goes on: what is cut, what is kept, and which file is refused.
#include "core/error.h"
#include "sample.h"
#include "store/hdf5.h"
#include "store/run_reader.h"
#include "store/run_writer.h"

#include <cmath>
#include <functional>

#include "catch.h"

using namespace palimpsest;
using sample::TemporaryFolder;

namespace {

std::string error_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

void check_rows(const RunRecord& record, std::int64_t first, std::int64_t last) {
    REQUIRE(record.step.size() == static_cast<std::size_t>(last - first + 1));
    for (const auto& [name, column] : record.train) REQUIRE(column.size() == record.step.size());
    for (std::size_t i = 0; i < record.step.size(); ++i) {
        const std::int64_t step = first + static_cast<std::int64_t>(i);
        const std::vector<float> expected = sample::metrics(step);
        REQUIRE(record.step[i] == step);
        REQUIRE(record.train.at("loss")[i] == expected[0]);
        REQUIRE(record.train.at("accuracy")[i] == expected[1]);
        REQUIRE(record.train.at("lr")[i] == expected[2]);
    }
}

template <class T>
T value(const Attributes& attributes, const std::string& name) {
    for (const auto& [key, v] : attributes) {
        if (key == name) return std::get<T>(v);
    }
    FAIL("no attribute " << name);
    return {};
}

Attributes of_start(const std::string& commit, std::int64_t threads) { return {{"commit", commit}, {"threads", threads}}; }

std::vector<std::string> changes_by_start(const std::string& file) {
    const hdf5::Handle open = hdf5::open_file(sample::bytes_of(file)), provenance = hdf5::open_group(open, "provenance");
    std::vector<std::string> texts;
    for (const char* name : {"start_1", "start_2", "start_3"}) {
        const hdf5::Handle group = hdf5::open_group(provenance, name);
        texts.push_back(hdf5::exists(group, "git_diff") ? hdf5::read<std::string>(hdf5::open_dataset(group, "git_diff"))[0]
                                                        : "as before");
    }
    return texts;
}

}  // namespace

TEST_CASE("every start tells what made it, and its time adds to the run's") {
    const TemporaryFolder folder;
    const RunHeader h = sample::header();
    {
        RunWriter writer = RunWriter::create(folder.path(), h, 1e9);
        writer.begin_start({.host = "a", .device = "cpu", .provenance = h.provenance, .git_diff = h.git_diff});
        sample::add_rows(writer, 1, 20);
        writer.end_start(20, "interrupted", 2.5);
    }
    {
        RunWriter writer = RunWriter::reopen(folder.path(), h, 20, 1e9);
        writer.begin_start(
            {.host = "b", .device = "cpu", .from_step = 20, .provenance = of_start("fedc", 2), .git_diff = h.git_diff});
        sample::add_rows(writer, 21, 35);
        writer.flush();  // and killed
    }
    {
        RunWriter writer = RunWriter::reopen(folder.path(), h, 25, 1e9);
        writer.begin_start(
            {.host = "c", .device = "cuda", .from_step = 27, .provenance = of_start("0000", 4), .git_diff = "-more\n"});
        writer.flush();  // killed before any row; its first step lies behind the last one, as where a run was stopped between two
                         // rows
    }
    RunWriter writer = RunWriter::reopen(folder.path(), h, 25, 1e9);
    writer.begin_start({.host = "d", .device = "cuda", .from_step = 25, .provenance = of_start("1111", 8), .git_diff = ""});
    sample::add_rows(writer, 26, 40);
    writer.end_start(40, "finished", 4);
    CHECK(writer.seconds() == Approx(2.5 + 3 + 0 + 4));  // the killed one has a row at 3 s
    writer.finish("finished", sample::summary(), {});

    const RunRecord r = read_run(folder.file("run.h5"));
    REQUIRE(r.starts.size() == 4);
    CHECK(value<std::string>(r.provenance, "commit") == "0123456789abcdef");
    CHECK(r.starts[0].provenance == r.provenance);
    CHECK(r.starts[1].provenance == of_start("fedc", 2));
    CHECK(r.starts[2].provenance == of_start("0000", 4));
    CHECK(r.starts[3].provenance == of_start("1111", 8));
    const auto column = [&](auto member) {
        std::vector<std::decay_t<decltype(r.starts[0].*member)>> values;
        for (const RunStart& start : r.starts) values.push_back(start.*member);
        return values;
    };
    CHECK(column(&RunStart::host) == std::vector<std::string>{"a", "b", "c", "d"});
    CHECK(column(&RunStart::device) == std::vector<std::string>{"cpu", "cpu", "cuda", "cuda"});
    CHECK(column(&RunStart::reason) == std::vector<std::string>{"interrupted", "lost", "lost", "finished"});
    CHECK(column(&RunStart::from_step) == std::vector<std::int64_t>{0, 20, 27, 25});
    CHECK(column(&RunStart::to_step) == std::vector<std::int64_t>{20, 35, 27, 40});
    CHECK(column(&RunStart::seconds) == std::vector<double>{2.5, 3, 0, 4});
    CHECK(changes_by_start(folder.file("run.h5")) == std::vector<std::string>{"as before", "-more\n", ""});
}

TEST_CASE("a file of format 1.0 goes on; the time of its starts stays unknown") {
    const TemporaryFolder folder;
    sample::write_run(folder.path(), 20);
    const hdf5::Handle older = hdf5::open_file(sample::bytes_of(folder.file("run.h5")), hdf5::Access::write);
    H5Ldelete(hdf5::open_group(older, "starts"), "seconds", H5P_DEFAULT);
    hdf5::write_attribute(hdf5::open_group(older, "/"), "format_version", std::string("1.0"));
    sample::write_bytes(folder.file("run.h5"), hdf5::image(older));
    CHECK(std::isnan(read_run(folder.file("run.h5")).starts.at(0).seconds));
    RunWriter writer = RunWriter::reopen(folder.path(), sample::header(), 20, 1e9);
    writer.begin_start({.host = "b", .device = "cpu", .from_step = 20});
    writer.end_start(20, "finished", 1);
    CHECK(std::isnan(writer.seconds()));
    writer.finish("finished", sample::summary(), {});
    const RunRecord r = read_run(folder.file("run.h5"));
    CHECK(r.format_version == "1.1");
    REQUIRE(r.starts.size() == 2);
    CHECK(r.starts[0].host == "host-a");
    CHECK(std::isnan(r.starts[0].seconds));
    CHECK(r.starts[1].seconds == 1);
}

TEST_CASE("a file with other columns than ours is not gone on with, and says which") {
    const TemporaryFolder folder;
    sample::write_run(folder.path(), 20);
    const std::string before = sample::bytes_of(folder.file("run.h5"));
    const auto refusal = [&](const RunHeader& h) { return error_of([&] { RunWriter::reopen(folder.path(), h, 20, 1e9); }); };
    const std::string head = "'" + folder.file("run.h5") +
                             "' was begun by another version of this program (version unknown, commit 0123456789abcdef), and "
                             "cannot be gone on with:\n  ",
                      tail = "\nGo on with that version, or remove the folder to train the run from the beginning";
    RunHeader h = sample::header();
    h.train_metrics.push_back({"skipped", "1", "updates skipped"});
    h.policies = {"majority"};
    CHECK(refusal(h) == head +
                            "columns of the training log: there loss, accuracy, lr; here loss, accuracy, lr, skipped\n  "
                            "shallow policies: there last_write, majority; here majority" +
                            tail);
    h = sample::header();
    std::swap(h.train_metrics[0], h.train_metrics[1]);  // a row goes by its place
    h.answer_classes.pop_back();
    CHECK(refusal(h) ==
          head +
              "columns of the training log: there loss, accuracy, lr; here accuracy, loss, lr\n  kinds of answers: there "
              "correct, stale, other_current, other_former, unbound, not_a_value; here correct, stale, other_current, "
              "other_former, unbound" +
              tail);
    h = sample::header();
    h.slices.pop_back();
    CHECK(refusal(h) == head + "slices of the evaluation: there 3; here 2" + tail);
    h = sample::header();
    h.slices[2].distance_to = 63;
    CHECK(refusal(h) == head +
                            "slice 2 of the evaluation: there test segment 0, 3 overwrites, distance 9..64; here test segment 0, 3 "
                            "overwrites, distance 9..63" +
                            tail);
    h = sample::header();
    h.slices[2].label = "in other words";
    CHECK(sample::bytes_of(folder.file("run.h5")) == before);
    CHECK(refusal(h) == "no error");
}

TEST_CASE("policies that were not scored keep their names all the same") {
    const TemporaryFolder folder;
    { RunWriter writer = RunWriter::create(folder.path(), sample::header(), 1e9); }
    RunHeader h = sample::header();
    h.policies = {"majority", "last_write"};
    CHECK_THAT(error_of([&] { RunWriter::reopen(folder.path(), h, 0, 1e9); }),
               ContainsSubstring("\n  shallow policies: there last_write, majority; here majority, last_write\n"));
}

TEST_CASE("a column that is shorter than its index is damage") {
    const TemporaryFolder folder;
    sample::write_run(folder.path(), 20);
    {
        const hdf5::Guard guard;
        const hdf5::Handle file = hdf5::open_file(sample::bytes_of(folder.file("run.h5")), hdf5::Access::write);
        const hdf5::Handle train = hdf5::open_group(file, "train"), eval_step = hdf5::open_dataset(file, "/eval/eval_step");
        REQUIRE(H5Ldelete(train, "lr", H5P_DEFAULT) >= 0);
        hdf5::write_column(train, "lr", std::vector<float>{1, 2}, {eval_step});
        sample::write_bytes(folder.file("run.h5"), hdf5::image(file));
    }
    CHECK(error_of([&] { read_run(folder.file("run.h5")); }) ==
          "'" + folder.file("run.h5") + "' is damaged: column 'lr' is shorter than its index");
    CHECK(read_run(folder.file("run.h5"), results_only).status == "finished");
}

TEST_CASE("attributes keep their order when a run goes on") {
    const TemporaryFolder folder;
    RunHeader h = sample::header();
    h.config.clear();
    for (const std::int64_t key : {7, 3, 11, 1, 9, 5, 12, 2, 10, 4, 8, 6})
        h.config.emplace_back("train.k" + std::to_string(key), key);
    { RunWriter writer = RunWriter::create(folder.path(), h, 1e9); }
    { RunWriter writer = RunWriter::reopen(folder.path(), h, 0, 1e9); }
    CHECK(read_run(folder.file("run.h5")).config == h.config);
}

TEST_CASE("a finished file is not written again") {
    const TemporaryFolder folder;
    RunWriter writer = RunWriter::create(folder.path(), sample::header(), 1e9);
    writer.begin_start({.host = "host-a", .device = "cpu"});
    CHECK_FALSE(writer.finished());
    writer.end_start(10, "finished", 1);
    writer.finish("finished", sample::summary(), {});
    CHECK(writer.finished());
    const std::string whole = sample::bytes_of(folder.file("run.h5"));
    CHECK_THROWS_AS(writer.begin_start({.host = "host-b"}), InternalError);
    CHECK_THROWS_AS(writer.artifact({"a", 1, "sum"}), InternalError);
    CHECK_THROWS_AS(writer.finish("failed", {}, {}), InternalError);
    writer.flush();
    CHECK(sample::bytes_of(folder.file("run.h5")) == whole);
}

// eval.policies is no part of a run's identity: who goes on with it may want them scored, or not.
TEST_CASE("shallow policies may be scored from any start on, or no more") {
    const std::vector<std::int64_t> scored(2 * 3 * 6, 7);
    for (const bool first : {false, true}) {
        const TemporaryFolder folder;
        {
            RunWriter writer = RunWriter::create(folder.path(), sample::header(), 1e9);
            if (first) writer.policy_answers(scored);
            sample::add_rows(writer, 1, 10);
        }
        CHECK(read_run(folder.file("run.h5")).policy_names.empty() != first);
        CHECK(read_run(folder.file("run.h5")).policy_answers.empty() != first);
        RunWriter writer = RunWriter::reopen(folder.path(), sample::header(), 10, 1e9);
        if (!first) writer.policy_answers(scored);
        writer.finish("finished", sample::summary(), {});
        CHECK(read_run(folder.file("run.h5")).policy_answers == scored);
    }
    // A file of an older version that began without them.
    const TemporaryFolder folder;
    RunHeader without = sample::header();
    without.policies.clear();
    { RunWriter writer = RunWriter::create(folder.path(), without, 1e9); }
    RunWriter writer = RunWriter::reopen(folder.path(), sample::header(), 0, 1e9);
    writer.policy_answers(scored);
    writer.finish("finished", sample::summary(), {});
    CHECK(read_run(folder.file("run.h5")).policy_answers.empty());
}

TEST_CASE("nothing is published once it is forbidden") {
    const TemporaryFolder folder;
    bool mine = true;
    const auto may_write = [&] {
        if (!mine) fail(ExitCode::run_failed, "taken over");
    };
    {
        RunWriter writer = RunWriter::create(folder.path(), sample::header(), 1e9, may_write);
        sample::add_rows(writer, 1, 5);
        writer.flush();
        mine = false;
        sample::add_rows(writer, 6, 9);
        CHECK(error_of([&] { writer.flush(); }) == "taken over");
        CHECK(error_of([&] { writer.finish("finished", {}, {}); }) == "taken over");
    }
    check_rows(read_run(folder.file("run.h5")), 1, 5);
    const std::string before = sample::bytes_of(folder.file("run.h5"));
    CHECK(error_of([&] { RunWriter::reopen(folder.path(), sample::header(), 2, 1e9, may_write); }) == "taken over");
    CHECK(error_of([&] { RunWriter::create(folder.path(), sample::header(), 1e9, may_write); }) == "taken over");
    CHECK(sample::bytes_of(folder.file("run.h5")) == before);
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}
