#include "support.h"

#include "config/diagnostics.h"
#include "config/value.h"
#include "core/file.h"
#include "core/hash.h"

#include <algorithm>
#include <cstring>

namespace palimpsest::testing {

SegmentSpec segment(const std::string& task, const std::string& options, std::int64_t examples) {
    const AnySchema& schema = get_task(task).schema();
    const std::shared_ptr<void> object = schema.make_default();
    Diagnostics diagnostics;
    schema.read(object.get(), parse_yaml("test", options), "task", diagnostics);
    diagnostics.throw_if_any();
    SegmentSpec out;
    out.options = object;
    out.examples = examples;
    out.label = options;
    return out;
}

RunSpec small_run() {
    RunSpec spec;
    spec.task.name = "mqar";
    const std::string options = "{length: 32, pairs: 2, vocabulary: 32}";
    spec.task.train = {segment("mqar", options, 100)};
    spec.task.test = {segment("mqar", options, 20)};
    spec.model.width = 16;
    spec.model.layers = {"base_conv", "softmax"};
    spec.train.batch = 8;
    spec.train.steps = 12;
    spec.run.threads = 1;
    spec.run.log_every = 5;
    spec.run.checkpoint_every = 0;
    return spec;
}

Lane lane_of(const RunSpec& spec) {
    Lane lane;
    lane.values = lane_values(spec);
    return lane;
}

void Recorder::train_row(std::int64_t step, std::span<const float> metrics) {
    row_steps.push_back(step);
    rows.emplace_back(metrics.begin(), metrics.end());
    if (stop && step >= stop_at) *stop = true;
}

bool same_arrays(const train::Checkpoint& a, const train::Checkpoint& b, const std::string& prefix) {
    std::size_t compared = 0;
    for (const auto& [name, tensor] : a.arrays) {
        if (!name.starts_with(prefix)) continue;
        const at::Tensor* other = b.find(name);
        if (!other || other->sizes() != tensor.sizes() || other->scalar_type() != tensor.scalar_type()) return false;
        if (tensor.nbytes() > 0 && std::memcmp(tensor.data_ptr(), other->data_ptr(), tensor.nbytes()) != 0) return false;
        ++compared;
    }
    return compared > 0 && (!prefix.empty() || a.arrays.size() == b.arrays.size());
}

double largest_difference(const train::Checkpoint& a, const train::Checkpoint& b, const std::string& prefix) {
    double largest = -1;
    for (const auto& [name, tensor] : a.arrays)
        if (name.starts_with(prefix)) largest = std::max(largest, (tensor - *b.find(name)).abs().max().item<double>());
    return largest;
}

void make_first_format(const std::string& path) {
    const std::string header = "palimpsest-checkpoint 2\n";
    std::string content = read_file(path);
    REQUIRE(content.starts_with(header));
    content[header.size() - 2] = '1';
    const std::uint64_t sum = fnv1a(std::string_view(content).substr(0, content.size() - 8));
    for (std::size_t i = 0; i < 8; ++i) content[content.size() - 8 + i] = static_cast<char>(sum >> (8 * i));
    write_file_atomic(path, content);
}

}  // namespace palimpsest::testing
