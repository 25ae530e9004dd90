// A run's record with values that follow from the step alone, so that any reader can tell whether they are right.
#pragma once

#include "store/run_writer.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdlib.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace palimpsest::sample {

// A folder that goes with its owner.
class TemporaryFolder {
public:
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "palimpsest-store-XXXXXX").string();
        path_ = ::mkdtemp(name.data());
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::string& path() const { return path_; }
    std::string file(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

inline std::string bytes_of(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline RunHeader header() {
    RunHeader h;
    h.run_id = "3f2a9c0d11e2";
    h.sweep_id = "quickstart";
    h.title = "overwrite, delta, seed 1";
    h.resolved_yaml = "name: quickstart\nmodel:\n  mixer: delta  # δ-rule\n";
    h.source_yaml = "name: quickstart\n";
    h.overrides = {"train.lr=3e-4", "name=\"x=y%z@w,[1]\""};
    h.config = {
        {"model.mixer", std::string("delta")}, {"model.width", std::int64_t{64}}, {"train.lr", 1e-3}, {"seed", std::int64_t{1}}};
    h.provenance = {
        {"commit", std::string("0123456789abcdef")}, {"dirty", std::int64_t{1}}, {"command", std::string("palimpsest run")}};
    h.git_diff = "-old\n+new ü\n";
    h.train_metrics = {{"loss", "1", "training loss"}, {"accuracy", "1", "training accuracy"}, {"lr", "1", "learning rate"}};
    h.slices = {{0, 0, 0, 1, 8, "valid length=64 overwrites=0"},
                {1, 0, 0, 1, 8, "test length=64 overwrites=0"},
                {1, 0, 3, 9, 64, "test length=64 overwrites=3"}};
    h.answer_classes = {"correct", "stale", "other_current", "other_former", "unbound", "not_a_value"};
    h.policies = {"last_write", "majority"};
    return h;
}

inline std::vector<float> metrics(std::int64_t step) {
    const auto s = static_cast<float>(step);
    return {1 / (1 + s), s / 1000, 1e-3f * s};
}

inline std::vector<std::int64_t> answers(std::int64_t step) {
    std::vector<std::int64_t> counts;
    for (std::int64_t slice = 0; slice < 3; ++slice) {
        for (std::int64_t c = 0; c < 6; ++c) counts.push_back(c == 0 ? 10 + step + slice : c);
    }
    return counts;
}

inline std::vector<double> losses(std::int64_t step) { return {1.0 * static_cast<double>(step), 2, 0.5}; }

// Rows for the steps first..last: training every step, evaluation and system every tenth.
inline void add_rows(RunWriter& writer, std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first; step <= last; ++step) {
        writer.train_row(step, metrics(step));
        if (step % 10 == 0) {
            writer.eval_row(step, answers(step), losses(step));
            writer.system_row({step, 0.1 * static_cast<double>(step), 1000 + static_cast<float>(step), 1 << 20});
        }
    }
}

inline std::vector<std::int64_t> policy_answers() {
    std::vector<std::int64_t> counts;
    for (std::int64_t i = 0; i < 2 * 3 * 6; ++i) counts.push_back(i);
    return counts;
}

inline std::map<std::string, double> summary(double test_accuracy = 0.75) {
    return {{"test_accuracy", test_accuracy}, {"best_step", 90}, {"state_bytes", 4096}};
}

// A whole run of `steps` steps, finished.
inline void write_run(const std::string& folder, std::int64_t steps, const RunHeader& h = header(), double test_accuracy = 0.75) {
    RunWriter writer = RunWriter::create(folder, h, 1e9);
    writer.begin_start({.host = "host-a", .device = "cpu"});
    writer.policy_answers(policy_answers());
    add_rows(writer, 1, steps);
    writer.artifact({"checkpoints/step-10.pt", 1234, std::string(64, 'a')});
    writer.end_start(steps, "finished", 12.5);
    writer.finish("finished", summary(test_accuracy), {{"selection", std::string("best valid_accuracy")}});
}

}  // namespace palimpsest::sample
