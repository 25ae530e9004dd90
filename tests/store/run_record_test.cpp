#include "core/error.h"
#include "sample.h"
#include "store/answers.h"
#include "store/hdf5.h"
#include "store/run_reader.h"
#include "store/run_writer.h"

#include <algorithm>
#include <cmath>
#include <ctime>
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

std::vector<std::string> column_of_texts(const std::string& file, const std::string& group, const std::string& name) {
    const hdf5::Handle open = hdf5::open_file(sample::bytes_of(file));
    return hdf5::read<std::string>(hdf5::open_dataset(hdf5::open_group(open, group), name));
}

std::vector<std::int64_t> column_of_integers(const std::string& file, const std::string& group, const std::string& name) {
    const hdf5::Handle open = hdf5::open_file(sample::bytes_of(file));
    return hdf5::read<std::int64_t>(hdf5::open_dataset(hdf5::open_group(open, group), name));
}

}  // namespace

TEST_CASE("a finished run reads back as it was written") {
    const TemporaryFolder folder;
    sample::write_run(folder.path(), 2500);
    const RunRecord r = read_run(folder.file("run.h5"));
    const RunHeader h = sample::header();

    CHECK(r.run_id == h.run_id);
    CHECK(r.sweep_id == h.sweep_id);
    CHECK(r.title == h.title);
    CHECK(r.status == "finished");
    CHECK(r.format_version == "1.1");
    CHECK(r.resolved_yaml == h.resolved_yaml);
    CHECK(value<std::string>(r.config, "model.mixer") == "delta");
    CHECK(value<std::int64_t>(r.config, "model.width") == 64);
    CHECK(value<double>(r.config, "train.lr") == 1e-3);
    CHECK(value<std::int64_t>(r.provenance, "dirty") == 1);
    check_rows(r, 1, 2500);

    REQUIRE(r.eval_step.size() == 250);
    CHECK(r.answer_classes == h.answer_classes);
    CHECK(r.policy_names == h.policies);
    CHECK(r.policy_answers == sample::policy_answers());
    for (std::size_t e = 0; e < r.eval_step.size(); ++e) {
        const std::int64_t step = static_cast<std::int64_t>(e + 1) * 10;
        REQUIRE(r.eval_step[e] == step);
        const std::vector<std::int64_t> answers = sample::answers(step);
        REQUIRE(std::equal(answers.begin(), answers.end(), r.answers.begin() + static_cast<std::ptrdiff_t>(e * answers.size())));
        REQUIRE(r.loss_sum[e * 3] == static_cast<double>(step));
    }
    REQUIRE(r.slices.size() == 3);
    CHECK(r.slices[2].split == 1);
    CHECK(r.slices[2].overwrites == 3);
    CHECK(r.slices[2].distance_from == 9);
    CHECK(r.slices[2].distance_to == 64);
    CHECK(r.slices[2].label == "test length=64 overwrites=3");
    CHECK(r.summary.at("test_accuracy") == 0.75);
    CHECK(r.summary.at("state_bytes") == 4096);
    CHECK(value<std::string>(r.summary_attributes, "selection") == "best valid_accuracy");
    CHECK(r.system.size() == 250);
    CHECK(r.system[0].tokens_per_second == 1010);
    CHECK(column_of_texts(folder.file("run.h5"), "artifacts", "path") == std::vector<std::string>{"checkpoints/step-10.pt"});
    CHECK(column_of_texts(folder.file("run.h5"), "config", "overrides") == h.overrides);

    // step 10: slices 1 and 2 are test: 21 + 22 correct of 21 + 22 + 2 * 15
    CHECK(accuracy(r, 0, 1) == Approx(43.0 / 73));
    CHECK(class_rate(r, 0, 0, 5) == Approx(5.0 / 35));
    CHECK(std::isnan(accuracy(r, 0, 7)));
}

TEST_CASE("rows stand in the file after a flush, and those of a dropped writer too") {
    const TemporaryFolder folder;
    {
        RunWriter writer = RunWriter::create(folder.path(), sample::header(), 1e9);
        CHECK(read_run(folder.file("run.h5")).step.empty());
        CHECK(read_run(folder.file("run.h5")).policy_answers.empty());
        CHECK(read_run(folder.file("run.h5")).status.empty());
        sample::add_rows(writer, 1, 5);
        CHECK(read_run(folder.file("run.h5")).step.empty());
        writer.flush();
        check_rows(read_run(folder.file("run.h5")), 1, 5);
        sample::add_rows(writer, 6, 7);
    }
    check_rows(read_run(folder.file("run.h5")), 1, 7);
}

TEST_CASE("256 rows or the interval publish without a call of flush") {
    const TemporaryFolder folder;
    RunWriter patient = RunWriter::create(folder.path(), sample::header(), 1e9);
    std::int64_t step = 0;
    while (read_run(folder.file("run.h5")).step.empty() && step < 20000)
        patient.train_row(step + 1, sample::metrics(step + 1)), ++step;
    CHECK(step >= 256);
    CHECK(step < 20000);

    const TemporaryFolder other;
    RunWriter hasty = RunWriter::create(other.path(), sample::header(), 0);
    hasty.train_row(1, sample::metrics(1));
    CHECK(read_run(other.file("run.h5")).step.size() == 1);
}

TEST_CASE("resuming cuts the rows beyond the checkpoint and goes on") {
    const TemporaryFolder folder;
    {
        RunWriter writer = RunWriter::create(folder.path(), sample::header(), 1e9);
        writer.begin_start({.host = "host-a", .device = "cpu"});
        sample::add_rows(writer, 1, 1500);
    }
    RunWriter writer = RunWriter::reopen(folder.path(), sample::header(), 1100, 1e9);
    check_rows(read_run(folder.file("run.h5")), 1, 1100);
    CHECK(read_run(folder.file("run.h5")).eval_step.back() == 1100);
    writer.begin_start({.host = "host-b", .device = "cpu", .from_step = 1100});
    sample::add_rows(writer, 1101, 1300);
    for (const std::int64_t bytes : {1, 2}) writer.artifact({"checkpoints/a", bytes, "sum"});
    writer.artifact({"checkpoints/b", 3, "sum"});
    writer.end_start(1300, "finished", 7);
    writer.finish("finished", sample::summary(), {});

    const RunRecord r = read_run(folder.file("run.h5"));
    check_rows(r, 1, 1300);
    CHECK(r.eval_step.size() == 130);
    CHECK(r.answers.size() == 130 * 3 * 6);
    CHECK(column_of_texts(folder.file("run.h5"), "starts", "reason") == std::vector<std::string>{"lost", "finished"});
    CHECK(column_of_texts(folder.file("run.h5"), "starts", "host") == std::vector<std::string>{"host-a", "host-b"});
    CHECK(column_of_integers(folder.file("run.h5"), "starts", "to_step") == std::vector<std::int64_t>{1500, 1300});
    CHECK(column_of_texts(folder.file("run.h5"), "artifacts", "path") ==
          std::vector<std::string>{"checkpoints/a", "checkpoints/b"});
    CHECK(column_of_integers(folder.file("run.h5"), "artifacts", "bytes") == std::vector<std::int64_t>{2, 3});
    CHECK(column_of_integers(folder.file("run.h5"), "starts", "from_step") == std::vector<std::int64_t>{0, 1100});
}

TEST_CASE("a run that had ended in failure can be resumed, and ends anew") {
    const TemporaryFolder folder;
    {
        RunWriter writer = RunWriter::create(folder.path(), sample::header(), 1e9);
        sample::add_rows(writer, 1, 100);
        writer.finish("failed", sample::summary(0.1), {{"selection", std::string("none")}});
    }
    RunWriter writer = RunWriter::reopen(folder.path(), sample::header(), 50, 1e9);
    const RunRecord live = read_run(folder.file("run.h5"));
    CHECK(live.status.empty());
    CHECK(live.summary.empty());
    CHECK(live.summary_attributes.empty());
    sample::add_rows(writer, 51, 60);
    writer.finish("finished", sample::summary(0.9), {});
    const RunRecord r = read_run(folder.file("run.h5"));
    check_rows(r, 1, 60);
    CHECK(r.status == "finished");
    CHECK(r.summary.at("test_accuracy") == 0.9);
    CHECK(r.policy_names.empty());  // none was scored
}

TEST_CASE("steps increase, and rows fit the columns") {
    const TemporaryFolder folder;
    RunWriter writer = RunWriter::create(folder.path(), sample::header(), 1e9);
    sample::add_rows(writer, 1, 10);
    CHECK_THROWS_AS(writer.train_row(10, sample::metrics(10)), InternalError);
    CHECK_THROWS_AS(writer.train_row(11, std::vector<float>{1.f}), InternalError);
    CHECK_THROWS_AS(writer.eval_row(20, std::vector<std::int64_t>(3), std::vector<double>(3)), InternalError);
}

TEST_CASE("an existing file stays whole when a second run wants its name") {
    const TemporaryFolder folder;
    sample::write_run(folder.path(), 20);
    const std::string before = sample::bytes_of(folder.file("run.h5"));
    CHECK(error_of([&] { RunWriter::create(folder.path(), sample::header(), 1); }) ==
          "'" + folder.file("run.h5") + "' exists already; a run's file is never overwritten");
    CHECK(sample::bytes_of(folder.file("run.h5")) == before);
}

TEST_CASE("a file cut anywhere is called damaged, by name") {
    const TemporaryFolder folder;
    sample::write_run(folder.path(), 3000);
    const std::string whole = sample::bytes_of(folder.file("run.h5"));
    const std::string cut = folder.file("cut.h5");
    for (int i = 0; i < 10; ++i) {
        const std::size_t length = i == 0 ? 0 : whole.size() * static_cast<std::size_t>(i) / 10 + static_cast<std::size_t>(7 * i);
        sample::write_bytes(cut, whole.substr(0, length));
        const std::string message = error_of([&] { read_run(cut); });
        INFO("length " << length << ": " << message);
        CHECK(message.rfind("'" + cut + "' is damaged: ", 0) == 0);
    }
    sample::write_bytes(cut, "");
    CHECK(error_of([&] { read_run(cut); }) == "'" + cut + "' is damaged: the file is empty");
    CHECK(error_of([&] { read_run(folder.file("none.h5")); }) ==
          "cannot read '" + folder.file("none.h5") + "': No such file or directory");
}

TEST_CASE("a file of a later format is refused, a later addition is not") {
    const TemporaryFolder folder;
    sample::write_run(folder.path(), 20);
    const auto with_version = [&](const std::string& version) {
        const hdf5::Handle copy = hdf5::open_file(sample::bytes_of(folder.file("run.h5")), hdf5::Access::write);
        hdf5::write_attribute(hdf5::open_group(copy, "/"), "format_version", version);
        hdf5::create_group(copy, "added_later");
        const std::string path = folder.file("v" + version + ".h5");
        sample::write_bytes(path, hdf5::image(copy));
        return path;
    };
    CHECK(read_run(with_version("1.7")).step.size() == 20);
    const std::string two = with_version("2.0");
    CHECK(error_of([&] { read_run(two); }) == "'" + two + "' was written by format 2.0; this tool reads 1.x");
    const std::string foreign = folder.file("foreign.h5");
    sample::write_bytes(foreign, hdf5::image(hdf5::create_file()));
    CHECK(error_of([&] { read_run(foreign); }) == "'" + foreign + "' is not the file of a run");
    // What this version does not know would be lost where the file is written anew.
    std::filesystem::rename(folder.file("v1.7.h5"), folder.file("run.h5"));
    const std::string refusal = error_of([&] { RunWriter::reopen(folder.path(), sample::header(), 20, 1); });
    CHECK(refusal.find("cannot be gone on with:\n  format: there 1.7; here 1.1\nGo on with that version") != std::string::npos);
}

TEST_CASE("live and finished files have a superblock that every reader opens") {
    const TemporaryFolder folder;
    const auto superblock = [&] { return static_cast<int>(sample::bytes_of(folder.file("run.h5"))[8]); };
    RunWriter writer = RunWriter::create(folder.path(), sample::header(), 1e9);
    CHECK((superblock() == 0 || superblock() == 2));
    writer.finish("finished", {}, {});
    CHECK((superblock() == 0 || superblock() == 2));
}

TEST_CASE("texts of a megabyte are kept, as datasets and as attributes") {
    const TemporaryFolder folder;
    RunHeader h = sample::header();
    h.resolved_yaml = std::string(1 << 20, 'y');
    h.git_diff = std::string(1 << 20, 'd');
    h.config.emplace_back("task.text", std::string(1 << 20, 'c'));
    RunWriter::create(folder.path(), h, 1e9).finish("finished", {}, {});
    const RunRecord r = read_run(folder.file("run.h5"));
    CHECK(r.resolved_yaml == h.resolved_yaml);
    CHECK(value<std::string>(r.config, "task.text") == std::string(1 << 20, 'c'));
    CHECK(value<std::int64_t>(r.config, "model.width") == 64);
    CHECK(column_of_texts(folder.file("run.h5"), "provenance", "git_diff") == std::vector<std::string>{h.git_diff});
}

TEST_CASE("a run without evaluation, policies and overrides is a valid file") {
    const TemporaryFolder folder;
    RunHeader h;
    h.run_id = "bare";
    h.train_metrics = {{"loss", "1", "training loss"}};
    RunWriter writer = RunWriter::create(folder.path(), h, 1e9);
    writer.train_row(1, std::vector<float>{0.5f});
    writer.finish("finished", {}, {});
    const RunRecord r = read_run(folder.file("run.h5"));
    CHECK(r.step.size() == 1);
    CHECK(r.slices.empty());
    CHECK_NOTHROW(RunWriter::reopen(folder.path(), h, 1, 1e9));
    CHECK(read_run(folder.file("run.h5")).step.size() == 1);
}

TEST_CASE("compression keeps the values and makes the file smaller, also while the run lives") {
    const TemporaryFolder folder;
    RunWriter writer = RunWriter::create(folder.path(), sample::header(), 1e9);
    constexpr std::size_t rows = 20000, of_training_log = rows * (8 + 3 * 4);  // bytes
    sample::add_rows(writer, 1, rows);
    writer.flush();
    check_rows(read_run(folder.file("run.h5")), 1, rows);
    CHECK(sample::bytes_of(folder.file("run.h5")).size() < of_training_log / 2);
    writer.finish("finished", {}, {});
    check_rows(read_run(folder.file("run.h5")), 1, rows);
    CHECK(sample::bytes_of(folder.file("run.h5")).size() < of_training_log / 2);
}

TEST_CASE("a million rows cost little time, and their file little more than the numbers") {
    const TemporaryFolder folder;
    RunHeader h = sample::header();
    h.train_metrics = {{"loss", "1", "training loss"}};
    const std::clock_t start = std::clock();  // of the processor: a busy machine does not matter
    RunWriter writer = RunWriter::create(folder.path(), h, 2);
    const std::int64_t rows = 1000000;
    float loss = 1;
    for (std::int64_t step = 1; step <= rows; ++step) writer.train_row(step, std::span<const float>(&loss, 1));
    writer.flush();
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    const double raw = static_cast<double>(rows) * (8 + 4);
    CHECK(static_cast<double>(sample::bytes_of(folder.file("run.h5")).size()) < 1.2 * raw);
    CHECK(seconds < 5);
}
