// One buffer, a table of offsets, leaves and gradients that are views of it, and initial values that do not depend on who else is
// packed.
#include "nn/parameters.h"

#include "core/error.h"

#include <cmath>
#include <map>

#include "catch.h"

using namespace palimpsest;
using namespace palimpsest::nn;

namespace {

const at::Device cpu(at::kCPU);

void declare_two(Parameters& parameters, Parameter* first = nullptr, Parameter* second = nullptr) {
    const Parameter a = parameters.declare("a", {3, 5}, InitRule::normal(0.02), Decay::yes);
    const Parameter b = parameters.declare("b", {70}, InitRule::uniform(-0.5, 0.5), Decay::no);
    if (first) *first = a;
    if (second) *second = b;
}

double average(const at::Tensor& x) { return x.mean().item<double>(); }

}  // namespace

TEST_CASE("every parameter is a contiguous block of one buffer at a multiple of 64 elements") {
    Parameters parameters;
    Parameter a, b;
    declare_two(parameters, &a, &b);
    parameters.allocate({1, 2, 3}, {1, 1, 1}, cpu);

    const auto& table = parameters.table();
    CHECK(table[0].offset == 0);
    CHECK(table[0].numel == 15);
    CHECK(table[1].offset == 64);  // 3 lanes x 15, rounded up
    CHECK(table[1].numel == 70);
    CHECK(parameters.values().numel() == 64 + 256);
    CHECK(parameters.count() == 85);
    CHECK(parameters.fixed_count() == 0);
    CHECK((*a).sizes() == at::IntArrayRef({3, 3, 5}));
    CHECK((*a).is_contiguous());
    CHECK((*b).data_ptr<float>() == parameters.values().data_ptr<float>() + 64);

    parameters.values().narrow(0, 64 + 70, 70).fill_(7);  // lane 1 of b
    CHECK((*b)[1].eq(7).all().item<bool>());
    CHECK_FALSE((*b)[0].eq(7).any().item<bool>());
}

TEST_CASE("backward adds to views of the flat gradient buffer") {
    Parameters parameters;
    Parameter a, b;
    declare_two(parameters, &a, &b);
    parameters.allocate({1}, {1}, cpu);
    for (int pass = 1; pass <= 2; ++pass) {
        ((*a) * (*a)).sum().backward();
        (*b).sum().backward();
        const at::Tensor flat = parameters.gradients();
        CHECK(at::equal(flat.narrow(0, 0, 15), (2.0 * pass) * parameters.values().narrow(0, 0, 15)));
        CHECK(flat.narrow(0, 64, 70).eq(pass).all().item<bool>());
        CHECK(flat.narrow(0, 15, 49).eq(0).all().item<bool>());  // padding
        CHECK((*a).grad().data_ptr<float>() == flat.data_ptr<float>());
    }
    parameters.zero_gradients();
    CHECK((*a).grad().eq(0).all().item<bool>());
    // A gradient of another layout lands there too.
    at::matmul((*a)[0].transpose(0, 1), at::ones({3, 2})).sum().backward();
    CHECK((*a).grad().data_ptr<float>() == parameters.gradients().data_ptr<float>());
    CHECK((*a).grad().eq(2).all().item<bool>());
}

TEST_CASE("a frozen parameter has values and a place, but no gradient") {
    Parameters parameters;
    const Parameter frozen = parameters.declare("frozen", {4}, InitRule::normal(1), Decay::yes, false);
    const Parameter trained = parameters.declare("trained", {4}, InitRule::normal(1), Decay::yes);
    parameters.allocate({1}, {1}, cpu);
    CHECK_FALSE((*frozen).requires_grad());
    ((*frozen) * (*trained)).sum().backward();
    CHECK_FALSE((*frozen).grad().defined());
    CHECK(at::equal((*trained).grad(), *frozen));
    CHECK(parameters.gradients().narrow(0, 0, 64).eq(0).all().item<bool>());
}

TEST_CASE("a lane starts bitwise where it starts alone") {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
        Parameters packed;
        declare_two(packed);
        packed.allocate({11, 12, 13}, {1, 0.5, 2}, cpu, type);
        for (int lane = 0; lane < 3; ++lane) {
            Parameters alone;
            declare_two(alone);
            alone.allocate({11 + static_cast<std::uint64_t>(lane)}, {lane == 0 ? 1 : lane == 1 ? 0.5 : 2.0}, cpu, type);
            for (std::size_t i = 0; i < 2; ++i) CHECK(at::equal(packed.leaf(i)[lane], alone.leaf(i)[0]));
        }
        CHECK_FALSE(at::equal(packed.leaf(0)[0], packed.leaf(0)[1]));
    }
}

TEST_CASE("initial values depend on the name, not on the order of declarations") {
    Parameters one, other;
    declare_two(one);
    other.declare("first", {9}, InitRule::normal(1), Decay::yes);
    declare_two(other);
    other.declare("c", {3, 5}, InitRule::normal(0.02), Decay::yes);
    one.allocate({5}, {1}, cpu);
    other.allocate({5}, {1}, cpu);
    CHECK(at::equal(one.leaf(0), other.leaf(1)));
    CHECK_FALSE(at::equal(other.leaf(1), other.leaf(3)));  // same rule, another name
}

TEST_CASE("init rules have the distributions they name") {
    Parameters parameters;
    parameters.declare("constant", {10}, InitRule::constant(0.25), Decay::no);
    parameters.declare("normal", {100, 1000}, InitRule::normal(0.02), Decay::yes);
    parameters.declare("uniform", {100, 1000}, InitRule::uniform(-0.25, 0.75), Decay::yes);
    parameters.declare("spherical", {1000, 16}, InitRule::spherical(), Decay::yes);
    parameters.declare("custom", {10}, InitRule::custom([](double u, std::int64_t i) { return static_cast<double>(i) + u; }),
                       Decay::no);
    parameters.declare("filled", {2, 5}, InitRule::filled([](std::uint64_t seed, std::vector<double>& values) {
                           for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(10 * seed + i);
                       }),
                       Decay::no, false);
    parameters.allocate({1, 1}, {1, 3}, cpu, at::kDouble);  // two lanes of one seed, the second scaled by 3
    const std::size_t kinds = parameters.table().size();
    std::map<std::string, at::Tensor> plain, scaled;
    for (std::size_t i = 0; i < kinds; ++i) {
        plain[parameters.table()[i].name] = parameters.leaf(i).detach()[0];
        scaled[parameters.table()[i].name] = parameters.leaf(i).detach()[1];
    }
    CHECK(plain["constant"].eq(0.25).all().item<bool>());
    // 1e5 samples: the mean is within 5 standard errors, the variance within 5 of its own
    CHECK(std::abs(average(plain["normal"])) < 5 * 0.02 / std::sqrt(1e5));
    CHECK(average(plain["normal"].square()) == Approx(4e-4).epsilon(5 * std::sqrt(2 / 1e5)));
    CHECK(average((plain["normal"] / 0.02).pow(4)) == Approx(3).epsilon(0.05));  // not uniform
    CHECK(std::abs(average(plain["normal"].flatten().narrow(0, 0, 99999) * plain["normal"].flatten().narrow(0, 1, 99999))) <
          5 * 4e-4 / std::sqrt(1e5));  // neighbours are independent
    CHECK(plain["uniform"].min().item<double>() >= -0.25);
    CHECK(plain["uniform"].max().item<double>() < 0.75);
    CHECK(average(plain["uniform"]) == Approx(0.25).margin(5 * std::sqrt(1 / 12e5)));
    CHECK(at::allclose(plain["spherical"].square().sum(-1), at::ones({1000}, at::kDouble), 0, 1e-12));
    CHECK(std::abs(average(plain["spherical"])) < 5 * 0.25 / std::sqrt(16000));
    for (int i = 0; i < 10; ++i) CHECK(std::floor(plain["custom"][i].item<double>()) == i);
    for (int i = 0; i < 10; ++i) CHECK(plain["filled"][i / 5][i % 5].item<double>() == 10 + i);

    for (const char* drawn : {"normal", "uniform", "spherical"}) CHECK(at::allclose(scaled[drawn], 3 * plain[drawn], 1e-12, 0));
    for (const char* fixed : {"constant", "custom", "filled"}) CHECK(at::equal(scaled[fixed], plain[fixed]));
}

TEST_CASE("misuse is an internal error with values") {
    Parameters parameters;
    const Parameter a = parameters.declare("a", {2}, InitRule::constant(0), Decay::no);
    CHECK_THROWS_WITH(*a, ContainsSubstring("parameter a was used before allocate()"));
    CHECK_THROWS_WITH(parameters.declare("a", {2}, InitRule::constant(0), Decay::no),
                      ContainsSubstring("parameter a was declared twice"));
    parameters.allocate({1}, {1}, cpu);
    CHECK_THROWS_WITH(parameters.declare("b", {2}, InitRule::constant(0), Decay::no),
                      ContainsSubstring("parameter b was declared after allocate()"));
    CHECK_THROWS_AS(*Parameter(), InternalError);
}
