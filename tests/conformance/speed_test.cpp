// Not a test of anything: milliseconds of a training step's forward and backward. Run it alone: test_conformance "[speed]".
#include "bench.h"

#include "model/model.h"
#include "ops/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

using namespace palimpsest;
using namespace palimpsest::conformance;

TEST_CASE("milliseconds of a training step", "[.][speed]") {
    struct Size {
        std::int64_t vocabulary, length, queries;
    };
    constexpr std::int64_t batch = 64;
    const Threads two(2);
    for (const Size size : {Size{256, 64, 4}, Size{8192, 64, 4}, Size{256, 256, 64}}) {
        for (const std::string& name : mixer_names()) {
            RunSpec spec;
            spec.model.mixer = name;
            Model model(spec, {size.vocabulary, size.length}, {{1, 1}}, test_device());
            const at::Tensor uniform =
                at::arange(batch * size.length, at::TensorOptions(at::kLong).device(test_device())).mul(7919);
            const at::Tensor tokens = uniform.remainder(size.vocabulary).view({1, batch, size.length});
            const at::Tensor positions =
                uniform.narrow(0, 0, batch * size.queries).remainder(size.length).view({1, batch, size.queries});
            const at::Tensor targets = tokens.flatten().narrow(0, 0, batch * size.queries).view({1, -1});
            std::vector<double> milliseconds;
            for (int step = 0; step < 25; ++step) {
                const auto start = std::chrono::steady_clock::now();
                model.parameters().zero_gradients();
                const at::Tensor logits = model.logits_at(model.hidden(tokens, nullptr, StepContext{}), positions);
                ops::cross_entropy(logits, targets).mean(-1).sum().backward();
                milliseconds.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
            }
            std::sort(milliseconds.begin(), milliseconds.end());
            fmt::print(stderr, "{:12} V {:5} T {:4} Q {:3}: {:8.2f} ms, best {:.2f}\n", name, size.vocabulary, size.length,
                       size.queries, milliseconds[milliseconds.size() / 2], milliseconds.front());
        }
    }
}
