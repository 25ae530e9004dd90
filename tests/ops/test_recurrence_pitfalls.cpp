// Errors that public implementations of this family had, one case each. The number is that of the project's table of them; a case
// stands elsewhere where the law it breaks is tested (chunk sizes, splits, strides, the future, empty sequences).
#include "support.h"

#include <ATen/ops/log_sigmoid.h>

using namespace palimpsest;
using namespace palimpsest::test;

namespace {

// Both forms, fp64 and fp32, against the plain loop, with the given decay; everything finite (NaN is never within a limit).
void agree_under(Case c, const at::Tensor& log_decay) {
    c.inputs["log_decay"] = log_decay;
    INFO(c.what);
    const Result exact = plain_loop(c);
    compare(run_case(c, ops::Backend::reference), exact, fp64);
    compare(run_case(c, ops::Backend::chunk), exact, fp64, depth(log_decay));
    compare(run_case(c, ops::Backend::reference, at::kFloat), exact, {1e-5, 2e-5, 1e-4});
    compare(run_case(c, ops::Backend::chunk, at::kFloat), exact, fp32_chunk, depth(log_decay));
}

at::Tensor constant_decay(const Case& c, double g) { return at::full_like(c.inputs.at("log_decay"), g); }

// y = o / (z . q + eps), as mixers normalise: a last column of ones in u.
at::Tensor normalised(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale, ops::Backend backend,
                      at::Tensor* state = nullptr) {
    ops::RecurrenceInput in;
    in.q = q;
    in.k = k;
    in.u = at::pad(v, {0, 1}, "constant", 1.0);
    in.scale = scale;
    const ops::RecurrenceOutput out = ops::recurrence(in, backend);
    if (state) *state = out.final_state;
    return out.o.narrow(-1, 0, v.size(-1)) / (out.o.narrow(-1, v.size(-1), 1) + 1e-30);
}

}  // namespace

TEST_CASE("pitfall 1: gates far out of range above the diagonal", "[recurrence][pitfall]") {
    Random random(1);
    for (const Gate gate : {Gate::scalar, Gate::channel}) {
        const Case c = random_case(201, {2, 75, 2, 16, 12, 1}, gate, true, true);
        agree_under(c, at::log_sigmoid(random.normal(c.inputs.at("log_decay").sizes().vec())) / 0.01);
    }
}

TEST_CASE("pitfall 2: lengths that are no multiple of a chunk, under strong decay", "[recurrence][pitfall]") {
    for (const std::int64_t T : {65, 75, 100}) {
        for (const Gate gate : {Gate::scalar, Gate::channel}) {
            const Case c = random_case(202, {2, T, 2, 16, 12, 1}, gate, true, true);
            agree_under(c, constant_decay(c, -20));
        }
    }
}

TEST_CASE("pitfall 3: GLA under strong decay does not overflow", "[recurrence][pitfall]") {
    const Case c = random_case(203, {2, 128, 2, 16, 12, 1}, Gate::channel, false, true);
    agree_under(c, constant_decay(c, -10));
}

TEST_CASE("pitfall 4: rows past the end do not reach dk", "[recurrence][pitfall]") {
    for (const bool erase : {false, true}) {
        const Case c = random_case(204, {2, 65, 2, 16, 12, 1}, Gate::channel, erase, true);
        agree_under(c, constant_decay(c, -30));
    }
}

TEST_CASE("pitfall 5: spikes of -100 at random tokens", "[recurrence][pitfall]") {
    for (const bool erase : {false, true}) {
        Random random(5);
        const Case c = random_case(205, {2, 100, 2, 16, 12, 1}, Gate::scalar, erase, true);
        const at::Tensor mild = c.inputs.at("log_decay");
        agree_under(c, mild - 100 * random.uniform(mild.sizes().vec()).lt(0.1).to(at::kDouble));
    }
}

TEST_CASE("pitfall 6: the gradient of a key passes through its normaliser", "[recurrence][pitfall]") {
    Random random(6);
    const std::int64_t T = 70;
    const Tensors x = {{"q", leaf(random.uniform({2, T, 2, 8}, 0.1, 1))},
                       {"k", leaf(random.uniform({2, T, 2, 8}, 0.1, 1))},
                       {"v", leaf(random.normal({2, T, 2, 5}))}};
    const Tensors cotangents = {{"o", random.normal({2, T, 2, 5})}};
    Result expected;
    const at::Tensor weight = at::matmul(x.at("q").transpose(1, 2), x.at("k").transpose(1, 2).transpose(-1, -2)).tril();
    expected.outputs["o"] = (at::matmul(weight, x.at("v").transpose(1, 2)) / weight.sum(-1, true)).transpose(1, 2);
    expected.gradients = gradients(x, expected.outputs, cotangents);
    for (const ops::Backend backend : both) {
        INFO(name_of(backend));
        Result found;
        found.outputs["o"] = normalised(x.at("q"), x.at("k"), x.at("v"), 1, backend);
        found.gradients = gradients(x, found.outputs, cotangents);
        compare(found, expected, fp64);
    }
}

TEST_CASE("pitfall 7: the normaliser sums over time, not over heads", "[recurrence][pitfall]") {
    Random random(7);
    const std::int64_t T = 7, H = 3;
    const at::Tensor q = random.uniform({2, T, H, 4}), k = random.uniform({2, T, H, 4}), v = random.normal({2, T, H, 5});
    for (const ops::Backend backend : both) {
        INFO(name_of(backend));
        at::Tensor state;
        normalised(q, k, v, 1, backend, &state);
        for (std::int64_t h = 0; h < H; ++h) {
            at::Tensor z = at::zeros({2, 4}, at::kDouble);
            for (std::int64_t t = 0; t < T; ++t) z = z + k.select(2, h).select(1, t);
            CHECK(distance(state.select(1, h).select(-1, 5), z) < 1e-14);
        }
    }
}

TEST_CASE("pitfall 8: the read scale reaches the normaliser too", "[recurrence][pitfall]") {
    Random random(8);
    const at::Tensor q = random.uniform({2, 20, 2, 4}), k = random.uniform({2, 20, 2, 4}), v = random.normal({2, 20, 2, 5});
    for (const ops::Backend backend : both) {
        CHECK(distance(normalised(q, k, v, 0.5, backend), normalised(q, k, v, 1, backend)) < 1e-14);
    }
}

TEST_CASE("pitfall 10: no initial state is an initial state of zeros, gradients included", "[recurrence][pitfall]") {
    for (const ops::Backend backend : both) {
        for (const Gate gate : all_gates) {
            const Case without = random_case(210, {2, 70, 2, 8, 6, 1}, gate, true, false);
            Case zeros = without;
            zeros.inputs["initial_state"] = at::zeros({2, 2, 8, 6}, at::kDouble);
            INFO(without.what << ", " << name_of(backend));
            compare(run_case(zeros, backend), run_case(without, backend), fp64);
        }
    }
}

TEST_CASE("pitfall 11 and 27: half-precision inputs do not make the state's gradient half precise", "[recurrence][pitfall]") {
    for (const ops::Backend backend : both) {
        Case c = random_case(211, {2, 200, 3, 8, 6, 1}, Gate::scalar, true, true);
        const at::Tensor state = c.inputs.at("initial_state");
        for (auto& [name, x] : c.inputs)
            x = x.to(name == "initial_state" || name == "log_decay" ? at::kFloat : at::kBFloat16).to(at::kDouble);
        c.inputs["log_decay"] = c.inputs["log_decay"] * 0.01;  // so that the gradient passes all 200 rows
        for (auto& [name, x] : c.cotangents)
            x = name == "final_state" ? x.to(at::kFloat).to(at::kDouble) : x.to(at::kBFloat16).to(at::kDouble);
        Tensors x;
        for (const auto& [name, value] : c.inputs)
            x[name] = leaf(value, name == "initial_state" || name == "log_decay" ? at::kFloat : at::kBFloat16);
        const Tensors found = gradients(x, outputs_of(ops::recurrence(make_input(x, c), backend, true)), c.cotangents);
        const Result exact = run_case(c, ops::Backend::reference);
        INFO(name_of(backend));
        CHECK(found.at("initial_state").scalar_type() == at::kFloat);
        CHECK(distance(found.at("initial_state"), exact.gradients.at("initial_state")) < 1e-4);
        CHECK(distance(found.at("log_decay"), exact.gradients.at("log_decay")) < 5e-4);
        for (const char* name : {"q", "k", "u", "e"})
            CHECK(distance(found.at(name), exact.gradients.at(name)) < 1e-2);  // rounded once, at the end
    }
}

TEST_CASE("pitfall 12: the gate of the last token of a partial chunk has its gradient", "[recurrence][pitfall]") {
    for (const Gate gate : {Gate::scalar, Gate::channel}) {
        for (const std::int64_t T : {1, 17, 65, 100}) {
            Case c = random_case(212, {2, T, 2, 8, 6, 1}, gate, true, true);
            c.cotangents = {{"final_state", c.cotangents.at("final_state")}};  // what reaches the gate from behind the chunk
            const auto last = [&](ops::Backend backend) { return run_case(c, backend).gradients.at("log_decay").select(1, T - 1); };
            INFO(c.what);
            CHECK(rms(last(ops::Backend::reference)) > 1e-3);
            CHECK(distance(last(ops::Backend::chunk), last(ops::Backend::reference)) < 1e-11);
        }
    }
}

TEST_CASE("pitfall 29: a large gradient before does not drown the gates after it", "[recurrence][pitfall]") {
    // dg_t sums over the rows from t on. As (sum of all) - (sum before t) its fp32 error is that of the first row's 1e7.
    for (const Gate gate : {Gate::scalar, Gate::channel}) {
        for (const ops::Backend backend : both) {
            Case c = random_case(229, {1, 60, 2, 8, 6, 1}, gate, false, true);
            c.cotangents.at("o").select(1, 0).mul_(1e7);
            const at::Tensor exact = run_case(c, ops::Backend::reference).gradients.at("log_decay");
            const at::Tensor found = run_case(c, backend, at::kFloat).gradients.at("log_decay");
            INFO(c.what << ", " << name_of(backend));
            CHECK(rms(exact.select(1, 0)) > 1e5);
            CHECK(distance(found.narrow(1, 1, 59), exact.narrow(1, 1, 59)) < 1e-4);
        }
    }
}

TEST_CASE("pitfall 30: every head has its own gates", "[recurrence][pitfall]") {
    for (const ops::Backend backend : both) {
        for (const Gate gate : {Gate::scalar, Gate::channel}) {
            Case c = random_case(230, {2, 70, 3, 8, 6, 1}, gate, true, true);
            const at::Tensor rate = at::exp2(2 * at::arange(3, at::TensorOptions(at::kDouble)));  // 1, 4, 16
            c.inputs["log_decay"] = c.inputs["log_decay"] * (gate == Gate::channel ? rate.view({3, 1}) : rate);
            const Result all = run_case(c, backend);
            for (std::int64_t h = 0; h < 3; ++h) {
                Case one = c;
                for (Tensors* x : {&one.inputs, &one.cotangents}) {
                    for (auto& [name, value] : *x)
                        value = value.narrow(name == "initial_state" || name == "final_state" ? 1 : 2, h, 1);
                }
                Result part = all;
                for (Tensors* x : {&part.outputs, &part.gradients}) {
                    for (auto& [name, value] : *x)
                        value = value.narrow(name == "initial_state" || name == "final_state" ? 1 : 2, h, 1);
                }
                INFO(c.what << ", " << name_of(backend) << ", head " << h);
                compare(part, run_case(one, backend), fp64);
            }
        }
    }
}

TEST_CASE("pitfall 31: what stands behind a buffer is not read", "[recurrence][pitfall]") {
    // Rows of 60 and 37 features are no whole vectors; every input is the front of a buffer that goes on with NaN.
    for (const ops::Backend backend : both) {
        for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
            Case c = random_case(231, {2, 21, 2, 60, 37, 1}, Gate::channel, true, true);
            const Result clean = run_case(c, backend, type);
            const auto poisoned = [&](const at::Tensor& x) {
                const at::Tensor buffer = at::full({x.numel() + 64}, NAN, x.options().dtype(type));
                buffer.narrow(0, 0, x.numel()).copy_(x.flatten());
                return buffer.narrow(0, 0, x.numel()).view(x.sizes());
            };
            Tensors x, cotangents;
            for (const auto& [name, value] : c.inputs) x[name] = poisoned(value).requires_grad_(true);
            for (const auto& [name, value] : c.cotangents) cotangents[name] = poisoned(value);
            const Tensors outputs = outputs_of(ops::recurrence(make_input(x, c), backend, true));
            INFO(name_of(backend));
            for (const auto& [name, value] : outputs) CHECK(same_bits(value, clean.outputs.at(name)));
            for (const auto& [name, value] : gradients(x, outputs, cotangents)) CHECK(same_bits(value, clean.gradients.at(name)));
        }
    }
}

TEST_CASE("pitfall 32: wide values are their tiles, and the tiles' gradients add up", "[recurrence][pitfall]") {
    const Case c = random_case(232, {2, 40, 2, 64, 128, 1}, Gate::channel, true, true);
    for (const ops::Backend backend : both) {
        const Result whole = run_case(c, backend);
        Result sum;
        for (std::int64_t first = 0; first < 128; first += 32) {
            Case tile = c;
            for (const char* name : {"u", "initial_state"}) tile.inputs[name] = c.inputs.at(name).narrow(-1, first, 32);
            for (auto& [name, value] : tile.cotangents) value = value.narrow(-1, first, 32);
            const Result part = run_case(tile, backend);
            for (const auto& [name, value] : part.outputs)
                sum.outputs[name] = first == 0 ? value : at::cat({sum.outputs[name], value}, -1);
            for (const auto& [name, value] : part.gradients) {
                const bool by_value = name == "u" || name == "initial_state";
                at::Tensor& total = sum.gradients[name];
                total = first == 0 ? value : by_value ? at::cat({total, value}, -1) : total + value;
            }
        }
        INFO(name_of(backend));
        compare(sum, whole, fp64);
    }
}

TEST_CASE("pitfall 34: more than 65535 sequences and heads", "[recurrence][pitfall]") {
    Random random(34);
    const std::int64_t N = 4096, H = 32;
    const at::Tensor q = random.normal({N, 1, H, 2}), k = random.normal({N, 1, H, 2}), u = random.normal({N, 1, H, 3});
    for (const ops::Backend backend : both) {
        ops::RecurrenceInput in;
        in.q = q.to(at::kFloat);
        in.k = k.to(at::kFloat);
        in.u = u.to(at::kFloat);
        INFO(name_of(backend));
        CHECK(distance(ops::recurrence(in, backend).o, (q * k).sum(-1, true) * u) < 1e-5);
    }
}

TEST_CASE("pitfall 38: the smallest gradient of a half-precision state reaches the gate", "[recurrence][pitfall]") {
    // q = k = u = 0: the only path is S_T = exp(g) S_0, and dS_T = 2^-25 is no number of fp16's normal range.
    for (const ops::Backend backend : both) {
        for (const Gate gate : {Gate::scalar, Gate::channel}) {
            Case c = random_case(238, {1, 20, 2, 8, 6, 1}, gate, false, true);
            Tensors x;
            for (const auto& [name, value] : c.inputs) {
                const bool wide = name == "initial_state" || name == "log_decay";
                x[name] = leaf(wide ? value : at::zeros_like(value), wide ? at::kFloat : at::kHalf);
            }
            const ops::RecurrenceOutput out = ops::recurrence(make_input(x, c), backend);
            const at::Tensor d = at::full({1, 2, 8, 6}, 0x1p-25);
            const at::Tensor found = gradients(x, {{"s", out.final_state}}, {{"s", d}}).at("log_decay");
            const at::Tensor passed = (c.inputs.at("initial_state") * 0x1p-25).sum(-1);  // [1, H, K]
            const at::Tensor faded = c.inputs.at("log_decay").sum(1).exp();              // [1, H] or [1, H, K]
            const at::Tensor expected = gate == Gate::channel ? passed * faded : passed.sum(-1) * faded;
            INFO(name_of(backend));
            CHECK(distance(found, expected.unsqueeze(1).expand_as(found)) < 1e-4);
        }
    }
}

TEST_CASE("pitfall 40: 8192 single steps keep up with the chunk form", "[recurrence][pitfall]") {
    const at::NoGradGuard no_grad;
    const std::int64_t T = 8192;
    Case c = random_case(240, {1, T, 1, 8, 6, 1}, Gate::scalar, true, true);
    c.inputs["log_decay"] = c.inputs["log_decay"] * 0.003;  // decays near 0.999: roundings of the state add up
    Tensors x;
    for (const auto& [name, value] : c.inputs) x[name] = value.to(at::kFloat);
    const ops::RecurrenceOutput whole = ops::recurrence(make_input(x, c), ops::Backend::chunk);
    Tensors step;
    step["initial_state"] = x["initial_state"];
    at::Tensor last;
    for (std::int64_t t = 0; t < T; ++t) {
        for (const char* name : {"q", "k", "u", "e", "log_decay"}) step[name] = x[name].narrow(1, t, 1);
        const ops::RecurrenceOutput out = ops::recurrence(make_input(step, c), ops::Backend::reference);
        step["initial_state"] = out.final_state;
        last = out.o;
    }
    CHECK(distance(step["initial_state"], whole.final_state) < 1e-5);
    CHECK(distance(last, whole.o.narrow(1, T - 1, 1)) < 1e-5);
    CHECK(distance(whole.final_state, ops::recurrence(make_input(c.inputs, c), ops::Backend::reference).final_state) < 1e-5);
}

TEST_CASE("pitfall 49: the reference under autograd is finite at -100", "[recurrence][pitfall]") {
    for (const Gate gate : {Gate::scalar, Gate::channel}) {
        for (const double g : {-100.0, -1000.0}) {
            Case c = random_case(249, {2, 20, 2, 8, 6, 1}, gate, true, true);
            c.inputs["log_decay"] = constant_decay(c, g);
            Tensors x;
            for (const auto& [name, value] : c.inputs) x[name] = leaf(value);
            Result found;
            found.outputs = outputs_of(ops::recurrence_rows(make_input(x, c), true));
            found.gradients = gradients(x, found.outputs, c.cotangents);
            INFO(c.what << ", decay " << g);
            compare(found, run_case(c, ops::Backend::reference), fp64);
        }
    }
}
