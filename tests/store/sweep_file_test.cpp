#include "store/sweep_file.h"

#include "core/file.h"
#include "sample.h"
#include "store/hdf5.h"
#include "store/run_folder.h"

#include <cmath>

#include "catch.h"

using namespace palimpsest;
using sample::TemporaryFolder;

namespace {

// Two mixers of two seeds; the last run's file is missing, the one before it damaged.
struct Sweep {
    TemporaryFolder temporary;
    std::vector<SweepRun> runs;

    Sweep() {
        add("softmax", 1, 0.9);
        add("softmax", 2, 0.7);
        add("delta", 1, 0.5);
        add("delta", 2, 0.4);
        add("linear", 1, 0.1);
        const std::string damaged = runs[3].folder + "/run.h5";
        sample::write_bytes(damaged, sample::bytes_of(damaged).substr(0, 1000));
        remove_file(runs[4].folder + "/run.h5");
        remove_file(runs[4].folder + "/DONE");
        RunFolder(runs[4].folder).write_failed({"error", "gone", 0});
    }

    void add(const std::string& mixer, std::int64_t seed, double accuracy) {
        const std::string id = mixer + "-" + std::to_string(seed);
        RunHeader h = sample::header();
        h.run_id = id;
        h.config = {{"model.mixer", mixer},
                    {"model.width", std::int64_t{64}},
                    {"seed", seed},
                    {"train.lr", 1e-3 * static_cast<double>(seed)}};
        const std::string folder = temporary.file(id);
        make_folders(folder);
        sample::write_run(folder, 20, h, accuracy);
        RunFolder(folder).write_done();
        runs.push_back({id, folder, {{"model.mixer", mixer}, {"seed", std::to_string(seed)}}});
    }
};

const Sweep& one_sweep() {
    static const Sweep sweep;
    return sweep;
}

}  // namespace

TEST_CASE("collecting reports a missing and a damaged run in their rows") {
    const Sweep& sweep = one_sweep();
    const std::vector<CollectedRun> runs = collect(sweep.runs);
    REQUIRE(runs.size() == 5);
    CHECK(runs[0].present);
    CHECK(runs[0].state == RunState::finished);
    CHECK(runs[0].record.summary.at("test_accuracy") == 0.9);
    CHECK_FALSE(runs[3].present);
    CHECK(runs[3].problem.rfind("'" + sweep.runs[3].folder + "/run.h5' is damaged: ", 0) == 0);
    CHECK_FALSE(runs[4].present);
    CHECK(runs[4].state == RunState::failed);
    CHECK(runs[4].problem == "cannot read '" + sweep.runs[4].folder + "/run.h5': No such file or directory");
}

TEST_CASE("of a run without a file the config is known from the plan, or from config.yaml beside it") {
    const TemporaryFolder temporary;
    for (const char* name : {"planned", "begun", "unreadable"}) make_folders(temporary.file(name));
    write_file_atomic(temporary.file("begun") + "/config.yaml",
                      "model: {mixer: delta, width: 64}\ntask: {test: [{length: 32}, {length: 64}]}\n");
    write_file_atomic(temporary.file("unreadable") + "/config.yaml", "model: [");
    const std::vector<CollectedRun> runs = collect({{"a", temporary.file("planned"), {}, "train: {lr: 1.0e-03}\n"},
                                                    {"b", temporary.file("begun"), {}},
                                                    {"c", temporary.file("unreadable"), {}}});
    CHECK(runs[0].record.config == Attributes{{"train.lr", 1e-3}});
    CHECK(runs[1].record.config == Attributes{{"model.mixer", std::string("delta")},
                                              {"model.width", std::int64_t{64}},
                                              {"task.test.0.length", std::int64_t{32}},
                                              {"task.test.1.length", std::int64_t{64}}});
    CHECK(runs[2].record.config.empty());
    for (const CollectedRun& run : runs) CHECK_FALSE(run.present);
}

TEST_CASE("sweep.h5 holds typed columns of what varies, and can be rebuilt") {
    const Sweep& sweep = one_sweep();
    const std::vector<CollectedRun> runs = collect(sweep.runs);
    for (int round = 0; round < 2; ++round) write_sweep_file(sweep.temporary.path(), "quickstart", "plan: é\n", runs);

    const hdf5::Handle file = hdf5::open_file(sample::bytes_of(sweep.temporary.file("sweep.h5")));
    const auto integers = [&](const char* path) { return hdf5::read<std::int64_t>(hdf5::open_dataset(file, path)); };
    const auto texts = [&](const char* path) { return hdf5::read<std::string>(hdf5::open_dataset(file, path)); };
    const auto type_class = [&](const char* path) {
        const hdf5::Handle dataset = hdf5::open_dataset(file, path);
        return H5Tget_class(hdf5::Handle(H5Dget_type(dataset), H5Tclose, "type"));
    };
    const std::vector<std::string> ids = {"softmax-1", "softmax-2", "delta-1", "delta-2", "linear-1"};
    CHECK(texts("/runs/run_id") == ids);
    CHECK(texts("/runs/folder") == ids);
    CHECK(texts("/runs/config/run_id") == ids);
    CHECK(texts("/runs/summary/run_id") == ids);
    CHECK(integers("/runs/status_code") == std::vector<std::int64_t>{2, 2, 2, 5, 3});
    CHECK(integers("/runs/present") == std::vector<std::int64_t>{1, 1, 1, 0, 0});
    CHECK(texts("/runs/config/model.mixer") == std::vector<std::string>{"softmax", "softmax", "delta", "delta", "linear"});
    CHECK(type_class("/runs/config/seed") == H5T_INTEGER);
    CHECK(integers("/runs/config/seed") == std::vector<std::int64_t>{1, 2, 1, 2, 1});
    CHECK(type_class("/runs/config/train.lr") == H5T_FLOAT);
    const hdf5::Handle config = hdf5::open_group(file, "/runs/config");
    CHECK(hdf5::children(config) == std::vector<std::string>{"run_id", "model.mixer", "seed", "train.lr"});
    const std::vector<double> accuracy = hdf5::read<double>(hdf5::open_dataset(file, "/runs/summary/test_accuracy"));
    CHECK(accuracy[0] == 0.9);
    CHECK(std::isnan(accuracy[3]));
    CHECK(texts("/manifest/yaml") == std::vector<std::string>{"plan: é\n"});
    const auto meanings = hdf5::read_attribute(hdf5::open_dataset(file, "/runs/status_code"), "flag_meanings");
    CHECK(std::get<std::string>(*meanings) == "fresh running finished failed interrupted lost");
}

TEST_CASE("a sweep without runs has a file too") {
    const TemporaryFolder temporary;
    write_sweep_file(temporary.path(), "empty", "", {});
    const hdf5::Handle file = hdf5::open_file(sample::bytes_of(temporary.file("sweep.h5")));
    CHECK(hdf5::read<std::string>(hdf5::open_dataset(file, "/runs/run_id")).empty());
}
