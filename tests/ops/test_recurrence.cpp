// The recurrence family against a plain loop of ATen operators, against finite differences, and against its own laws.
#include "core/error.h"
#include "support.h"

#include <ATen/Parallel.h>
#include <ATen/ops/log_sigmoid.h>

using namespace palimpsest;
using namespace palimpsest::test;

namespace {

// Hard inputs of the delta rule: keys that repeat or lie close together, strengths at the ends of their range.
Case delta_case(std::uint64_t seed, std::int64_t T, Gate gate, double beta, const std::string& keys) {
    Case c = random_case(seed, {2, T, 2, 32, 24, 1}, gate, true, true);
    Random random(seed + 1000);
    at::Tensor k = c.inputs["k"];
    if (keys == "positive") k = random.uniform({2, T, 2, 32});  // cosine about 0.75
    if (keys == "repeated") k = k.narrow(1, 0, 1).expand_as(k);
    if (keys == "few") k = k.narrow(1, 0, std::min<std::int64_t>(T, 3)).repeat({1, T, 1, 1}).narrow(1, 0, T);
    k = (k / k.square().sum(-1, true).sqrt()).contiguous();
    c.inputs["k"] = k;
    c.inputs["e"] = beta * k;
    c.inputs["u"] = beta * c.inputs["u"];
    c.what += ", " + keys + " keys, beta " + std::to_string(beta);
    return c;
}

}  // namespace

TEST_CASE("the token-by-token form equals a plain loop in fp64", "[recurrence]") {
    std::uint64_t seed = 1;
    for (const std::int64_t T : {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65}) {
        for (const Gate gate : all_gates) {
            for (const bool erase : {false, true}) {
                const std::vector<std::pair<std::int64_t, std::int64_t>> heads = {{5, 3}, {16, 16}, {17, 33}, {24, 70}, {40, 9}};
                const auto [K, V] = heads[seed % heads.size()];
                const Case c =
                    random_case(seed, {2, T, 3, K, V, 1 + static_cast<std::int64_t>(seed % 3)}, gate, erase, seed % 2 == 0);
                INFO(c.what);
                compare(run_case(c, ops::Backend::reference), plain_loop(c), fp64);
                ++seed;
            }
        }
    }
}

TEST_CASE("the reference of other devices equals a plain loop", "[recurrence]") {
    for (const Gate gate : all_gates) {
        for (const bool erase : {false, true}) {
            const Case c = random_case(5, {2, 6, 3, 5, 4, 2}, gate, erase, erase);
            Tensors x;
            for (const auto& [name, value] : c.inputs) x[name] = leaf(value);
            Result found;
            found.outputs = outputs_of(ops::recurrence_rows(make_input(x, c), true));
            found.gradients = gradients(x, found.outputs, c.cotangents);
            INFO(c.what);
            compare(found, plain_loop(c), fp64);
        }
    }
}

TEST_CASE("gradients equal central differences", "[recurrence]") {
    // Of every element of every input, through o, the final state and the residual together.
    for (const Gate gate : all_gates) {
        const Case c = random_case(7, {1, 4, 2, 3, 2, 2}, gate, true, true);
        for (const ops::Backend backend : both) {
            const Result result = run_case(c, backend);
            const auto loss = [&](const Tensors& inputs) {
                const Tensors out = outputs_of(ops::recurrence(make_input(inputs, c), backend, true));
                double sum = 0;
                for (const auto& [name, cotangent] : c.cotangents) sum += (out.at(name) * cotangent).sum().item<double>();
                return sum;
            };
            for (const auto& [name, x] : c.inputs) {
                at::Tensor numeric = at::empty_like(x);
                for (std::int64_t i = 0; i < x.numel(); ++i) {
                    const auto moved = [&](double by) {
                        Tensors inputs = c.inputs;
                        inputs[name] = x.clone();
                        inputs[name].mutable_data_ptr<double>()[i] += by;
                        return loss(inputs);
                    };
                    const double h = 1e-3;  // five points: the error falls with h^4
                    numeric.mutable_data_ptr<double>()[i] =
                        (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
                }
                INFO(c.what << ", " << name_of(backend) << ", " << name);
                CHECK(distance(result.gradients.at(name), numeric) < 1e-9);
            }
        }
    }
}

TEST_CASE("the chunk form equals the token-by-token form in fp64", "[recurrence]") {
    std::uint64_t seed = 100;
    for (const std::int64_t T : {1, 2, 3, 15, 16, 17, 63, 64, 65, 100, 150}) {
        for (const Gate gate : all_gates) {
            for (const bool erase : {false, true}) {
                Case c = random_case(seed, {2, T, 2, 12, 7, 1 + static_cast<std::int64_t>(seed % 2)}, gate, erase, seed % 3 != 0);
                c.chunk = std::vector<std::int64_t>{16, 32, 64}[seed % 3];
                INFO(c.what << ", chunk " << c.chunk);
                compare(run_case(c, ops::Backend::chunk), run_case(c, ops::Backend::reference), fp64);
                ++seed;
            }
        }
    }
}

TEST_CASE("fp32 stays within its limits", "[recurrence]") {
    for (const Gate gate : all_gates) {
        for (const bool erase : {false, true}) {
            const Case c = random_case(21, {2, 150, 2, 32, 48, 1}, gate, erase, true);
            const Result exact = run_case(c, ops::Backend::reference);
            INFO(c.what);
            compare(run_case(c, ops::Backend::reference, at::kFloat), exact, fp32_reference);
            compare(run_case(c, ops::Backend::chunk, at::kFloat), exact, fp32_chunk);
        }
    }
}

TEST_CASE("hard keys and strengths", "[recurrence]") {
    for (const double beta : {0.0, 1.0, 2.0}) {
        for (const std::string keys : {"gaussian", "positive", "repeated", "few"}) {
            for (const Gate gate : {Gate::none, Gate::scalar, Gate::channel}) {
                const Case c = delta_case(31, 100, gate, beta, keys);
                INFO(c.what);
                const Result exact = run_case(c, ops::Backend::reference);
                compare(run_case(c, ops::Backend::chunk), exact, fp64);
                compare(run_case(c, ops::Backend::chunk, at::kFloat), exact, fp32_chunk);
                compare(run_case(c, ops::Backend::reference, at::kFloat), exact, fp32_reference);
            }
        }
    }
}

TEST_CASE("strong decay neither overflows nor loses the past it should keep", "[recurrence]") {
    Random random(41);
    for (const Gate gate : {Gate::scalar, Gate::channel}) {
        for (const bool erase : {false, true}) {
            const std::int64_t T = gate == Gate::scalar ? 65 : 100;
            Case c = random_case(42, {2, T, 2, 16, 16, 1}, gate, erase, true);
            const at::Tensor plain = c.inputs["log_decay"];
            const at::Tensor draw = at::log_sigmoid(random.normal(plain.sizes().vec()));
            const at::Tensor spike = random.uniform(plain.sizes().vec()).lt(0.1).to(at::kDouble);
            const std::map<std::string, at::Tensor> decays = {
                {"-5 at every row", at::full_like(plain, -5)},
                {"-20 at every row", at::full_like(plain, -20)},
                {"spikes of -50", plain - 50 * spike},
                {"spikes of -100", plain - 100 * spike},
                {"tau 0.01", draw / 0.01},
                {"tau 10, half zero", draw / 10 * random.uniform(plain.sizes().vec()).lt(0.5).to(at::kDouble)},
            };
            for (const auto& [what, g] : decays) {
                c.inputs["log_decay"] = g;
                INFO(c.what << ", " << what);
                const Result exact = run_case(c, ops::Backend::reference);
                compare(exact, plain_loop(c), fp64);
                compare(run_case(c, ops::Backend::chunk), exact, fp64, depth(g));
                compare(run_case(c, ops::Backend::reference, at::kFloat), exact, {1e-5, 2e-5, 1e-4});
                compare(run_case(c, ops::Backend::chunk, at::kFloat), exact, fp32_chunk, depth(g));
            }
        }
    }
}

TEST_CASE("pitfall 51: decay comes before the error is read", "[recurrence][pitfall]") {
    // Two tokens, one key, decay 1/2, beta 1: 4 is written, fades to 2, and 10 replaces it.
    for (const ops::Backend backend : both) {
        ops::RecurrenceInput in;
        in.k = at::ones({1, 2, 1, 1}, at::kDouble);
        in.q = in.e = in.k;
        in.u = at::full({1, 2, 1, 1}, 4.0, at::kDouble);
        in.u.select(1, 1).fill_(10);
        in.log_decay = at::full({1, 2, 1}, std::log(0.5), at::kDouble);
        const ops::RecurrenceOutput out = ops::recurrence(in, backend, true);
        CHECK(out.residual.select(1, 1).item<double>() == Approx(8));
        CHECK(out.o.select(1, 1).item<double>() == Approx(10));
    }
}

TEST_CASE("pitfall 13: the size of a chunk changes nothing", "[recurrence][pitfall]") {
    for (const Gate gate : all_gates) {
        Case c = random_case(61, {2, 100, 2, 8, 6, 1}, gate, true, true);
        c.chunk = 16;
        const Result small = run_case(c, ops::Backend::chunk);
        for (const std::int64_t chunk : {32, 48, 64, 128}) {
            c.chunk = chunk;
            INFO(c.what << ", chunk " << chunk);
            compare(run_case(c, ops::Backend::chunk), small, fp64);
        }
    }
}

TEST_CASE("pitfall 19 and 39: a sequence is its beginning and then its rest", "[recurrence][pitfall]") {
    for (const ops::Backend backend : both) {
        for (const Gate gate : all_gates) {
            const std::int64_t T = 70;
            const Case c = random_case(71, {2, T, 2, 8, 6, 2}, gate, true, true);
            const Result whole = run_case(c, backend);
            for (const std::int64_t at_token : {1, 2, 16, 31, 64, 69}) {
                INFO(c.what << ", " << name_of(backend) << ", split at " << at_token);
                Tensors x;
                for (const auto& [name, value] : c.inputs) x[name] = leaf(value);
                const auto part = [&](std::int64_t begin, std::int64_t length) {
                    Tensors p;
                    for (const auto& [name, value] : x) {
                        const std::int64_t m = name == "q" ? 1 : c.micro_steps;
                        if (name != "initial_state") p[name] = value.narrow(1, begin * m, length * m);
                    }
                    return p;
                };
                Tensors first = part(0, at_token), rest = part(at_token, T - at_token);
                first["initial_state"] = x["initial_state"];
                const auto a = ops::recurrence(make_input(first, c), backend, true);
                rest["initial_state"] = a.final_state;
                const auto b = ops::recurrence(make_input(rest, c), backend, true);
                Result found;
                found.outputs = {{"o", at::cat({a.o, b.o}, 1)},
                                 {"final_state", b.final_state},
                                 {"residual", at::cat({a.residual, b.residual}, 1)}};
                found.gradients = gradients(x, found.outputs, c.cotangents);
                compare(found, whole, fp64);
            }
        }
    }
}

TEST_CASE("pitfall 43: the future, its gates included, does not touch the past", "[recurrence][pitfall]") {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
        for (const ops::Backend backend : both) {
            for (const Gate gate : all_gates) {
                const std::int64_t T = 100;
                const Case c = random_case(81, {2, T, 2, 16, 16, 1}, gate, true, true);
                const Case other = random_case(82, {2, T, 2, 16, 16, 1}, gate, true, true);
                for (const std::int64_t known : {1, 16, 30, 77}) {
                    INFO(c.what << ", " << name_of(backend) << ", known " << known);
                    const auto past = [&](const at::Tensor& x) { return x.narrow(1, 0, known); };
                    const auto run = [&](bool changed) {
                        Tensors x;
                        for (const auto& [name, value] : c.inputs) {
                            at::Tensor mixed = value;
                            if (changed && name != "initial_state") {
                                at::Tensor future = other.inputs.at(name).narrow(1, known, T - known);
                                if (name == "log_decay") future = future * 30;  // strong gates, where a leak would show
                                mixed = at::cat({past(value), future}, 1);
                            }
                            x[name] = leaf(mixed, type);
                        }
                        const auto out = ops::recurrence(make_input(x, c), backend, true);
                        Result r;
                        r.outputs = {{"o", past(out.o)}, {"residual", past(out.residual)}};
                        r.gradients = gradients(
                            x, r.outputs, {{"o", past(c.cotangents.at("o"))}, {"residual", past(c.cotangents.at("residual"))}});
                        return r;
                    };
                    const Result a = run(false), b = run(true);
                    for (const auto& [name, x] : a.outputs) {
                        INFO(name);
                        CHECK(same_bits(x, b.outputs.at(name)));
                    }
                    for (const auto& [name, x] : a.gradients) {
                        INFO("gradient of " << name);
                        CHECK(same_bits(x, b.gradients.at(name)));
                        if (name != "initial_state") CHECK(x.narrow(1, known, T - known).abs().max().item<double>() == 0);
                    }
                }
            }
        }
    }
}

TEST_CASE("pitfall 17: strides of inputs and cotangents do not matter", "[recurrence][pitfall]") {
    const auto strided = [](const at::Tensor& x) { return x.transpose(0, x.dim() - 1).contiguous().transpose(0, x.dim() - 1); };
    for (const ops::Backend backend : both) {
        const Case c = random_case(91, {2, 20, 3, 8, 6, 1}, Gate::channel, true, true);
        Tensors x;
        for (const auto& [name, value] : c.inputs) x[name] = strided(value).set_requires_grad(true);
        CHECK_FALSE(x["q"].is_contiguous());
        Tensors cotangents;
        for (const auto& [name, value] : c.cotangents) cotangents[name] = strided(value);
        Result found;
        found.outputs = outputs_of(ops::recurrence(make_input(x, c), backend, true));
        found.gradients = gradients(x, found.outputs, cotangents);
        compare(found, run_case(c, backend), {1e-13, 1e-13, 1e-13});
    }
}

TEST_CASE("cotangents that are not there count as zero", "[recurrence]") {
    for (const ops::Backend backend : both) {
        for (const char* present : {"o", "final_state", "residual"}) {
            Case c = random_case(95, {1, 20, 2, 8, 6, 1}, Gate::scalar, true, true);
            c.cotangents = {{present, c.cotangents.at(present)}};
            INFO(name_of(backend) << ", only " << present);
            compare(run_case(c, backend), plain_loop(c), fp64);
        }
    }
}

TEST_CASE("pitfall 45: an empty sequence passes its state and its gradient on", "[recurrence][pitfall]") {
    for (const ops::Backend backend : {ops::Backend::reference, ops::Backend::chunk, ops::Backend::automatic}) {
        Tensors x = random_case(97, {2, 0, 2, 4, 3, 1}, Gate::scalar, true, true).inputs;
        x["initial_state"].set_requires_grad(true);
        const auto out = ops::recurrence(make_input(x, Case()), backend);
        CHECK(same_bits(out.final_state, x["initial_state"]));
        CHECK(out.o.sizes() == at::IntArrayRef({2, 0, 2, 3}));
        const at::Tensor d = at::ones({2, 2, 4, 3}, at::kDouble);
        CHECK(same_bits(gradients({{"s", x["initial_state"]}}, {{"f", out.final_state}}, {{"f", d}})["s"], d));
    }
}

TEST_CASE("pitfall 33: repeats and thread counts give the same bits", "[recurrence][pitfall]") {
    const int threads = at::get_num_threads();
    for (const ops::Backend backend : both) {
        const Case c = random_case(99, {5, 50, 2, 16, 24, 1}, Gate::channel, true, true);
        at::set_num_threads(1);
        const Result one = run_case(c, backend, at::kFloat);
        at::set_num_threads(2);
        const Result two = run_case(c, backend, at::kFloat), again = run_case(c, backend, at::kFloat);
        at::set_num_threads(threads);
        for (const auto& [name, x] : one.gradients) {
            INFO(name_of(backend) << ", " << name);
            CHECK(same_bits(two.gradients.at(name), again.gradients.at(name)));
            if (backend == ops::Backend::reference) CHECK(same_bits(x, two.gradients.at(name)));
        }
    }
}

TEST_CASE("half-precision inputs are computed in fp32", "[recurrence]") {
    const Case c = random_case(103, {2, 40, 2, 8, 6, 1}, Gate::scalar, true, false);
    Tensors low, wide;
    for (const auto& [name, x] : c.inputs) {
        low[name] = x.to(name == "log_decay" ? at::kFloat : at::kBFloat16);
        wide[name] = low[name].to(at::kFloat);
    }
    const auto a = ops::recurrence(make_input(low, c)), b = ops::recurrence(make_input(wide, c));
    CHECK(a.o.scalar_type() == at::kBFloat16);
    CHECK(a.final_state.scalar_type() == at::kFloat);
    CHECK(same_bits(a.final_state, b.final_state));
    CHECK(same_bits(a.o, b.o.to(at::kBFloat16)));
}

TEST_CASE("inputs that do not fit are named", "[recurrence][errors]") {
    const Case c = random_case(101, {2, 4, 3, 5, 6, 1}, Gate::channel, true, true);
    const auto message = [&](const std::function<void(ops::RecurrenceInput&)>& spoil,
                             ops::Backend backend = ops::Backend::automatic) {
        ops::RecurrenceInput in = make_input(c.inputs, c);
        spoil(in);
        try {
            ops::recurrence(in, backend);
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::usage);
            return std::string(error.what());
        }
        return std::string("no error");
    };
    CHECK(message([](auto& in) { in.k = in.k.narrow(1, 0, 3); }) ==
          "recurrence: k is [2, 3, 3, 5]; with q [2, 4, 3, 5] it must be [N, T*M, H, K] = [2, 4, 3, 5]");
    CHECK(message([](auto& in) { in.micro_steps = 2; }) ==
          "recurrence: k is [2, 4, 3, 5]; with q [2, 4, 3, 5] it must be [N, T*M, H, K] = [2, 8, 3, 5]");
    CHECK(message([](auto& in) { in.u = in.u.narrow(2, 0, 2); }) ==
          "recurrence: u is [2, 4, 2, 6]; with q [2, 4, 3, 5] it must be [N, T*M, H, V] = [2, 4, 3, 6]");
    CHECK(message([](auto& in) { in.e = in.u; }) ==
          "recurrence: e is [2, 4, 3, 6]; with q [2, 4, 3, 5] it must be [N, T*M, H, K] = [2, 4, 3, 5]");
    CHECK(message([](auto& in) { in.log_decay = in.log_decay.select(-1, 0).narrow(2, 0, 1); }) ==
          "recurrence: log_decay is [2, 4, 1]; with q [2, 4, 3, 5] it must be [N, T*M, H] = [2, 4, 3]");
    CHECK(message([](auto& in) { in.initial_state = in.initial_state.transpose(2, 3); }) ==
          "recurrence: initial_state is [2, 3, 6, 5]; with q [2, 4, 3, 5] it must be [N, H, K, V] = [2, 3, 5, 6]");
    CHECK(message([](auto& in) { in.q = in.q.select(0, 0); }) == "recurrence: q is [4, 3, 5]; it must be [N, T, H, K]");
    CHECK(message([](auto& in) { in.k = at::Tensor(); }) == "recurrence: q, k and u are required");
    CHECK(message([](auto& in) { in.chunk = 20; }) == "recurrence: chunk is 20; it must be a multiple of 16");
    CHECK(message([](auto&) {}, ops::Backend::fused) == "run.backend: fused is not built yet; use auto, reference or chunk");
}
