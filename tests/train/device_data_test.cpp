// Batches made on a GPU, where there is one. Their golden values are those of the host: tests/golden/fingerprints.txt.
#include "core/error.h"
#include "support.h"
#include "task/program.h"
#include "task/support.h"
#include "train/data.h"

#include <ATen/Context.h>

using namespace palimpsest;
using namespace palimpsest::testing;

namespace {

// Filler alone; `extra` positions more than its shape has are a mistake.
struct Quiet : EventProgram {
    std::int64_t extra = 0;
    template <class Sink>
    PALIMPSEST_HD void emit(Rng& rng, Sink& sink) const {
        for (std::int64_t i = 0; i < shape.length + extra; ++i) sink.noise(uniform(rng, shape.vocabulary.size));
    }
};
struct Broken : Quiet {};

template <class P>
train::Segments quiet_segments(P program) {
    program.shape.length = 5;
    program.shape.vocabulary.size = 100;
    train::Segments out;
    out.train.push_back({std::make_shared<ProgramOf<P>>("quiet", Compiled<P>{program}), 1000, ""});
    return out;
}

train::BatchOrder three_steps(const train::Segments& segments, std::int64_t batch) {
    TrainSpec spec;
    spec.steps = 3;
    spec.batch = batch;
    return train::BatchOrder(segments.train, spec, DataSpec{});
}

train::Segments segments_of(const std::vector<Case>& cases, std::int64_t examples) {
    train::Segments out;
    for (const Case& c : cases) out.train.push_back({compile(c), examples, c.name()});
    return out;
}

void check_same(const train::Batch& host, const train::Batch& device) {
    for (const auto part : {&train::Batch::tokens, &train::Batch::positions, &train::Batch::targets}) {
        CHECK((device.*part).is_cuda());
        CHECK((host.*part).equal((device.*part).cpu()));
    }
    CHECK(host.value_tokens == device.value_tokens);
}

}  // namespace

TEST_CASE("a build with CUDA makes the batches of every task on the device", "[train][data]") {
    if (!at::Context::hasCUDART()) return;
    for (const std::string& task : task_names()) {
        INFO(task << ": end the upper half of its file with PALIMPSEST_DEVICE_TASK");
        CHECK(compile(task, "{}")->on_device());
    }
}

TEST_CASE("batches made on a GPU are those of the host, to the bit", "[train][data]") {
    if (!at::Context::hasCUDA()) return;
    const auto device = at::Device(at::kCUDA, 0);
    const std::vector<std::uint64_t> seeds{1, 7, 1, 0xFFFFFFFF'FFFFFFFF};
    for (const Case& c : cases()) {
        INFO(c.name());
        const train::Segments segments = segments_of({c}, 1000);
        const train::BatchOrder order = three_steps(segments, 64);
        const train::TrainData host(segments, order, seeds, at::kCPU, 2), gpu(segments, order, seeds, device, 2);
        for (const std::int64_t step : {0, 2}) check_same(host.batch(step), gpu.batch(step));
    }
}

TEST_CASE("segments take turns on a GPU as on the host, shuffled, with a smaller last batch, of one lane and of many",
          "[train][data]") {
    if (!at::Context::hasCUDA()) return;
    const train::Segments segments = segments_of({{"mqar", "{length: 64, pairs: 8, vocabulary: 64}"},
                                                  {"overwrite", "{length: 64, vocabulary: 64}"},
                                                  {"needle", "{length: 64, vocabulary: 64}"}},
                                                 45);
    TrainSpec spec;
    spec.batch = 16;
    spec.epochs = 2;
    DataSpec data;
    data.mode = GENERATE(DataMode::fixed, DataMode::fresh);
    data.order = GENERATE(DataOrder::shuffled, DataOrder::in_order);
    const train::BatchOrder order(segments.train, spec, data);
    for (const std::int64_t lanes : {1, 40}) {
        std::vector<std::uint64_t> seeds(static_cast<std::size_t>(lanes));
        for (std::size_t i = 0; i < seeds.size(); ++i) seeds[i] = 3 * i;
        const train::TrainData host(segments, order, seeds, at::kCPU, 2), gpu(segments, order, seeds, at::Device(at::kCUDA, 0), 2);
        for (std::int64_t step = 0; step < order.steps(); ++step) check_same(host.batch(step), gpu.batch(step));
    }
}

TEST_CASE("a task that nvcc has not seen makes its batches on the host and sends them", "[train][data]") {
    if (!at::Context::hasCUDA()) return;
    const train::Segments segments = quiet_segments(Quiet{});
    REQUIRE_FALSE(segments.train[0].program->on_device());
    const train::BatchOrder order = three_steps(segments, 8);
    const train::TrainData host(segments, order, {1, 2}, at::kCPU, 1), gpu(segments, order, {1, 2}, at::Device(at::kCUDA, 0), 1);
    check_same(host.batch(1), gpu.batch(1));
}

TEST_CASE("a program that breaks its shape on a GPU is told of with its example", "[train][data]") {
    if (!at::Context::hasCUDA()) return;
    // Stands in for nvcc's: it marks the second batch, as the kernel would.
    register_device_launcher(typeid(Broken), [](const EventProgram&, Stream, const DeviceBatch& batch) -> const char* {
        if (batch.range.first > 0) *batch.fault = batch.mark;
        return nullptr;
    });
    Broken program;
    program.extra = 1;
    const train::Segments segments = quiet_segments(program);
    const train::TrainData gpu(segments, three_steps(segments, 8), {1}, at::Device(at::kCUDA, 0), 1);
    static_cast<void>(gpu.batch(0));
    CHECK_NOTHROW(gpu.check());
    static_cast<void>(gpu.batch(1));
    CHECK_THROWS_WITH(
        gpu.check(),
        ContainsSubstring("task 'quiet' breaks its own shape in example 8: emit lays out more than the 5 positions of the length"));
}

TEST_CASE("what CUDA says against a batch is an error", "[train][data]") {
    if (!at::Context::hasCUDA()) return;
    struct Refused : Quiet {};
    register_device_launcher(typeid(Refused), [](const EventProgram&, Stream, const DeviceBatch&) { return "no such thing"; });
    const train::Segments segments = quiet_segments(Refused{});
    const train::TrainData gpu(segments, three_steps(segments, 8), {1}, at::Device(at::kCUDA, 0), 1);
    CHECK_THROWS_WITH(gpu.batch(0), "making a batch on the GPU: no such thing");
}
