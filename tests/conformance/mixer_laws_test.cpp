// The laws of ARCHITECTURE, over every registered mixer: lanes, splits, causality, determinism, bytes of the state.
#include "bench.h"
#include "core/error.h"

#include <fmt/ranges.h>

using namespace palimpsest;
using namespace palimpsest::conformance;

namespace {

// One forward over pieces of the given lengths, the state carried; tokens one by one through `step`.
at::Tensor in_pieces(Unit& unit, const at::Tensor& x, const std::vector<std::int64_t>& lengths, State& state) {
    std::vector<at::Tensor> pieces;
    StepContext context;
    for (const std::int64_t length : lengths) {
        const at::Tensor piece = x.narrow(2, context.position, length);
        pieces.push_back(length == 1 ? unit.mixer->step(piece, state, context) : unit.mixer->forward(piece, &state, context));
        context.position += length;
    }
    PALIMPSEST_ASSERT(context.position == x.size(2), "pieces of {} tokens for a sequence of {}", context.position, x.size(2));
    return at::cat(pieces, 2);
}

std::vector<std::vector<std::int64_t>> ways_to_cut(std::int64_t length) {
    std::vector<std::vector<std::int64_t>> ways;
    if (length < 20) {
        for (std::int64_t split = 1; split < length; ++split) ways.push_back({split, length - split});
        ways.emplace_back(length, 1);      // token by token
        ways.emplace_back(length / 2, 2);  // pairs, and a last one alone
        if (length % 2) ways.back().push_back(1);
        ways.push_back({1, 2, 3, length - 6});
    } else {  // across the edge of a chunk of 64
        for (const std::int64_t split : {std::int64_t{1}, std::int64_t{33}, std::int64_t{63}, std::int64_t{64}, std::int64_t{65}}) {
            ways.push_back({split, length - split});
        }
    }
    return ways;
}

std::string text(const std::vector<std::int64_t>& lengths) { return fmt::format("{}", fmt::join(lengths, "+")); }

}  // namespace

TEST_CASE("lane law: lanes packed are lanes alone") {
    // fp64 shows that no lane sees another; fp32, what users run, to rounding
    for (const auto& [type, limit] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 1e-5}}) {
        for (const Variant& variant : variants()) {
            INFO(variant.title());
            const std::vector<std::uint64_t> seeds{7, 8, 9};
            Unit packed(variant, seeds, type);
            const at::Tensor x = noise({3, 2, 13, width}, 1, type), weight = noise({3, 2, 13, width}, 2, type);
            const Unit::Gradients all = packed.differentiate(x, weight);
            for (std::int64_t lane = 0; lane < 3; ++lane) {
                INFO("lane " << lane);
                Unit alone(variant, {seeds[static_cast<std::size_t>(lane)]}, type);
                for (std::size_t i = 0; i < packed.parameters.table().size(); ++i) {
                    INFO(packed.parameters.table()[i].name);
                    CHECK(at::equal(packed.parameters.leaf(i)[lane], alone.parameters.leaf(i)[0]));
                }
                const Unit::Gradients one = alone.differentiate(x.narrow(0, lane, 1), weight.narrow(0, lane, 1));
                CHECK(within(all.y[lane], one.y[0], limit));
                CHECK(within(all.x[lane], one.x[0], limit));
                for (std::size_t i = 0; i < one.parameters.size(); ++i) {
                    INFO(one.parameters[i].first);
                    // On a GPU the order of a sum over the whole batch depends on its shape, and such a sum may cancel.
                    const double sums = test_device().is_cpu() ? limit : 3 * limit;
                    CHECK(within(all.parameters[i].second[lane], one.parameters[i].second[0], sums));
                }
            }
        }
    }
}

TEST_CASE("split law (pitfall 19 and 39): the whole is a prefix and the rest from the carried state", "[pitfall]") {
    for (const Variant& variant : variants()) {
        for (const std::int64_t length : {13, 70}) {
            Unit unit(variant, {7, 8}, at::kDouble);
            const at::Tensor x = noise({2, 2, length, width}, 1, at::kDouble),
                             weight = noise({2, 2, length, width}, 2, at::kDouble);
            const Unit::Gradients whole = unit.differentiate(x, weight);
            State end;
            {
                const at::NoGradGuard no_grad;
                INFO(variant.title() << ", whole with a state");
                CHECK(within(unit.mixer->forward(x, &end, StepContext{}), whole.y, 1e-12));
            }
            for (const std::vector<std::int64_t>& lengths : ways_to_cut(length)) {
                INFO(variant.title() << ", " << text(lengths));
                unit.parameters.zero_gradients();
                const at::Tensor input = x.clone().set_requires_grad(true);
                State state;
                const at::Tensor y = in_pieces(unit, input, lengths, state);
                CHECK(within(y, whole.y, 1e-11));
                (y * weight).sum().backward();
                CHECK(within(input.grad(), whole.x, 1e-10));  // gradients flow through the state
                const auto gradients = unit.parameter_gradients();
                for (std::size_t i = 0; i < gradients.size(); ++i) {
                    INFO(gradients[i].first);
                    CHECK(within(gradients[i].second, whole.parameters[i].second, 1e-10));
                }
                REQUIRE(state.tensors().size() == end.tensors().size());
                for (const auto& [name, tensor] : end.tensors()) {
                    INFO("state " << name);
                    REQUIRE(state.has(name));
                    CHECK(within(state[name], tensor, 1e-11));
                }
            }
        }
    }
}

TEST_CASE("causality (pitfall 43): the future changes no earlier output and no earlier gradient, bit for bit", "[pitfall]") {
    for (const Variant& variant : variants()) {
        Unit unit(variant, {7, 8}, at::kFloat);
        for (const std::int64_t length : {20, 100}) {
            const at::Tensor x = noise({2, 2, length, width}, 1, at::kFloat);
            const at::Tensor other = 3 * noise({2, 2, length, width}, 3, at::kFloat);
            for (const std::int64_t t : {1, 7, 15, 16, 17, 48, 63, 64, 65, 99}) {
                if (t >= length) continue;
                INFO(variant.title() << ", " << length << " tokens, the future begins at " << t);
                const at::Tensor changed = at::cat({x.narrow(2, 0, t), other.narrow(2, t, length - t)}, 2);
                at::Tensor weight = noise({2, 2, length, width}, 2, at::kFloat);
                weight.narrow(2, t, length - t).zero_();  // earlier outputs alone
                const Unit::Gradients before = unit.differentiate(x, weight), after = unit.differentiate(changed, weight);
                CHECK_FALSE(at::equal(before.y, after.y));
                CHECK(at::equal(before.y.narrow(2, 0, t), after.y.narrow(2, 0, t)));
                CHECK(at::equal(before.x.narrow(2, 0, t), after.x.narrow(2, 0, t)));
                CHECK(before.x.narrow(2, t, length - t).eq(0).all().item<bool>());
                for (std::size_t i = 0; i < before.parameters.size(); ++i) {
                    INFO(before.parameters[i].first);
                    CHECK(at::equal(before.parameters[i].second, after.parameters[i].second));
                }
            }
        }
    }
}

TEST_CASE("determinism (pitfall 33): a repeat is the same bit for bit", "[pitfall]") {
    const Threads two(2);
    for (const Variant& variant : variants()) {
        INFO(variant.title());
        Unit unit(variant, {7, 8}, at::kFloat);
        const at::Tensor x = noise({2, 8, 70, width}, 1, at::kFloat), weight = noise({2, 8, 70, width}, 2, at::kFloat);
        const Unit::Gradients first = unit.differentiate(x, weight);
        for (int repeat = 0; repeat < 3; ++repeat) {
            const Unit::Gradients again = unit.differentiate(x, weight);
            CHECK(at::equal(first.y, again.y));
            CHECK(at::equal(first.x, again.x));
            for (std::size_t i = 0; i < first.parameters.size(); ++i) {
                INFO(first.parameters[i].first);
                CHECK(at::equal(first.parameters[i].second, again.parameters[i].second));
            }
        }
    }
}

TEST_CASE("bytes of a state are those of its tensors, and constant unless the facts say that it grows") {
    const at::NoGradGuard no_grad;
    for (const Variant& variant : variants()) {
        INFO(variant.title());
        Unit unit(variant, {7, 8}, at::kFloat);
        std::vector<std::int64_t> bytes;
        for (const std::int64_t length : {8, 40}) {
            State state;
            unit.mixer->forward(noise({2, 3, length, width}, 1, at::kFloat), &state, StepContext{});
            std::int64_t sum = 0;
            for (const auto& [name, tensor] : state.tensors()) {
                INFO("state " << name);
                REQUIRE(tensor.dim() >= 3);
                CHECK(tensor.size(0) == 2);
                CHECK(tensor.size(1) == 3);
                // an own, dense tensor: a view would keep the activations of the whole sequence alive
                CHECK(tensor.is_non_overlapping_and_dense());
                CHECK(static_cast<std::int64_t>(tensor.storage().nbytes()) == static_cast<std::int64_t>(tensor.nbytes()));
                sum += static_cast<std::int64_t>(tensor.nbytes());
            }
            CHECK(state.bytes() * 2 * 3 == sum);
            bytes.push_back(state.bytes());
        }
        if (get_mixer(variant.mixer).facts().growing_state) CHECK(bytes[1] > bytes[0]);
        else CHECK(bytes[1] == bytes[0]);
    }
}
