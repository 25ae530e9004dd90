// The feature maps of linear attention that are more than a function of one number: DPFP and the Taylor series of Based.
#include "parts.h"

#include <functional>

using namespace palimpsest;
using namespace palimpsest::conformance;

namespace {

using Row = std::vector<double>;

// DPFP as published: products of the parts of x above and below zero, neighbours up to nu apart.
Row dpfp(const Row& x, std::int64_t nu) {
    Row parts, products;
    for (const double value : x) parts.push_back(std::max(value, 0.0));
    for (const double value : x) parts.push_back(std::max(-value, 0.0));
    const auto n = static_cast<std::int64_t>(parts.size());
    for (std::int64_t j = 1; j <= nu; ++j) {
        for (std::int64_t i = 0; i < n; ++i)
            products.push_back(parts[static_cast<std::size_t>(i)] * parts[static_cast<std::size_t>((i - j + n) % n)]);
    }
    return products;
}

double dot(const Row& a, const Row& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// Linear attention, head by head and number by number: o_t = sum_j w(q_t, k_j) v_j / sum_j w(q_t, k_j), or without the division.
at::Tensor attention(Parts& p, const at::Tensor& x, std::int64_t heads, bool normalise,
                     const std::function<double(const Row&, const Row&)>& w) {
    const at::Tensor q = p.heads(x, "q", heads).to(at::kCPU), k = p.heads(x, "k", heads).to(at::kCPU),
                     v = p.heads(x, "v", heads).to(at::kCPU);
    const auto row = [](const at::Tensor& all, std::int64_t b, std::int64_t t, std::int64_t h) {
        const at::Tensor r = all[b][t][h].contiguous();
        return Row(r.const_data_ptr<double>(), r.const_data_ptr<double>() + r.numel());
    };
    at::Tensor o = at::zeros_like(v);
    for (std::int64_t b = 0; b < x.size(0); ++b) {
        for (std::int64_t h = 0; h < heads; ++h) {
            for (std::int64_t t = 0; t < x.size(1); ++t) {
                double sum = 0;
                for (std::int64_t j = 0; j <= t; ++j) {
                    const double weight = w(row(q, b, t, h), row(k, b, j, h));
                    o[b][t][h] += weight * v[b][j][h];
                    sum += weight;
                }
                if (normalise && sum > 0) o[b][t][h] /= sum;  // 0: a query that shares no feature with any key
            }
        }
    }
    return at::matmul(o.flatten(2).to(x.device()), p["out.weight"]);
}

Variant plain(const std::string& map, bool normalise, std::vector<std::pair<std::string, std::string>> more) {
    std::vector<std::pair<std::string, std::string>> options = {{"feature_map", map},
                                                                {"normalise", normalise ? "true" : "false"},
                                                                {"short_conv", "0"},
                                                                {"out_norm", "false"},
                                                                {"eps", "1e-30"}};
    options.insert(options.end(), more.begin(), more.end());
    return {"linear", options, false};
}

}  // namespace

TEST_CASE("pitfall 22: DPFP is a map of each head alone, and its negative part is max(-x, 0)", "[pitfall]") {
    for (const bool normalise : {true, false}) {
        for (const std::int64_t nu : {1, 3, 7}) {
            INFO("nu " << nu << ", normalise " << normalise);
            Parts p(plain("dpfp", normalise, {{"heads", "4"}, {"nu", std::to_string(nu)}}));
            const at::Tensor x = noise({2, 9, width}, 3, at::kDouble);
            const at::Tensor expected = attention(p, x, 4, normalise, [&](const Row& q, const Row& k) {
                return dot(dpfp(q, nu), dpfp(k, nu)) / (normalise ? 1 : 2);  // sqrt D = 2
            });
            CHECK(within(p.forward(x), expected, 1e-12));
        }
    }
}

TEST_CASE("pitfall 22: the Taylor map of each head has the products 1 + s + s^2 / 2", "[pitfall]") {
    for (const bool normalise : {true, false}) {
        for (const std::int64_t heads : {1, 2, 4}) {
            INFO(heads << " heads, normalise " << normalise);
            Parts p(plain("taylor", normalise, {{"heads", std::to_string(heads)}}));
            const at::Tensor x = 2 * noise({2, 9, width}, 4, at::kDouble);
            const at::Tensor expected = attention(p, x, heads, normalise, [](const Row& q, const Row& k) {
                const double s = dot(q, k) / std::sqrt(static_cast<double>(q.size()));
                return 1 + s + s * s / 2;
            });
            CHECK(within(p.forward(x), expected, 1e-12));
        }
    }
}

TEST_CASE("features of the maps, by the size of the state") {
    const auto features = [](const std::string& map, std::vector<std::pair<std::string, std::string>> options) {
        Unit unit(plain(map, true, std::move(options)), {1}, at::kFloat);
        State state;
        const at::NoGradGuard no_grad;
        unit.mixer->forward(noise({1, 1, 3, width}, 1, at::kFloat), &state, StepContext{});
        return state["memory"].size(3);
    };
    CHECK(features("taylor", {{"heads", "1"}}) == 153);  // D = 16
    CHECK(features("taylor", {{"heads", "2"}, {"expand_k", "0.5"}}) == 1 + 4 + 10);
    CHECK(features("dpfp", {{"heads", "1"}}) == 2 * 3 * 16);
    CHECK(features("dpfp", {{"heads", "2"}, {"nu", "5"}}) == 2 * 5 * 8);
    // No map has parameters: four projections and the norm of a head.
    for (const char* map : {"dpfp", "taylor"}) {
        CHECK(parameter_count("linear", 64, {{"feature_map", map}, {"heads", "2"}, {"short_conv", "0"}}) == 4 * 64 * 64 + 32);
    }
}

TEST_CASE("DPFP refuses more neighbours than a head has") {
    CHECK(refusal(plain("dpfp", true, {{"heads", "2"}, {"nu", "16"}})) ==
          "mixers.linear.nu: 16 neighbours of 16 parts (2 x 8 features of a head); set at most 15");
}
