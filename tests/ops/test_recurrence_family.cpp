// The members of the family as the mixers use them, on the inputs that break implementations; and how they reduce to one another.
#include "support.h"

#include <algorithm>

using namespace palimpsest;
using namespace palimpsest::test;

namespace {

struct Member {
    const char* mixers;
    Gate gate;
    bool erase;       // e = beta k, u = beta v
    bool normalised;  // divided by a last column that sums the keys
};
const std::vector<Member> members = {
    {"linear", Gate::none, false, true},
    {"linear without normaliser", Gate::none, false, false},
    {"performer, linear with exp", Gate::scalar, false, true},
    {"retnet, mamba2", Gate::scalar, false, false},
    {"gla", Gate::channel, false, false},
    {"delta", Gate::none, true, false},
    {"gated_delta", Gate::scalar, true, false},
    {"kda", Gate::channel, true, false},
};

constexpr std::int64_t N = 2, H = 2, K = 16, V = 24;

// What a mixer hands to the recurrence: q, k, v, beta, log_decay and the memory it starts from are the leaves, so that the gradient
// of a key is that of its write and its erase together.
struct Inputs {
    Tensors leaves, cotangents;
    std::string what;
};

const std::vector<std::string> decays = {"mild", "-5", "spikes of -50", "spikes of -100"};
const std::vector<std::string> strengths = {"0", "uniform", "1", "2"};
const std::vector<std::string> keys = {"gaussian", "cosine 0.75", "cosine 0.95", "repeated"};

at::Tensor decay_of(Random& random, const std::string& kind, const std::vector<std::int64_t>& sizes) {
    if (kind == "-5") return at::full(sizes, -5.0, at::kDouble);
    const at::Tensor mild = random.uniform(sizes).log() * 0.2;
    const double spike = kind == "spikes of -50" ? 50 : kind == "spikes of -100" ? 100 : 0;
    return mild - spike * random.uniform(sizes).lt(0.1).to(at::kDouble);
}

Inputs draw(std::uint64_t seed, const Member& member, std::int64_t T, const std::string& decay, const std::string& beta,
            const std::string& key) {
    Random random(seed);
    Inputs in;
    const std::vector<std::int64_t> rows = {N, T, H, K};
    at::Tensor q = random.normal(rows), k = random.normal(rows);
    if (member.normalised) {  // as a feature map leaves them
        q = q.abs();
        k = k.abs();
    }
    const double cosine = key == "cosine 0.75" ? 0.75 : key == "cosine 0.95" ? 0.95 : key == "repeated" ? 1 : 0;
    const auto unit = [](const at::Tensor& x) { return x / x.square().sum(-1, true).sqrt(); };
    if (!member.normalised || cosine > 0) k = std::sqrt(1 - cosine) * unit(k) + std::sqrt(cosine) * unit(k.narrow(1, 0, 1));
    in.leaves["q"] = q;
    in.leaves["k"] = member.normalised ? k : unit(k);
    in.leaves["v"] = random.normal({N, T, H, V});
    if (member.erase)
        in.leaves["beta"] =
            beta == "uniform" ? random.uniform({N, T, H, 1}, 0, 2) : at::full({N, T, H, 1}, std::stod(beta), at::kDouble);
    if (member.gate == Gate::scalar) in.leaves["log_decay"] = decay_of(random, decay, {N, T, H});
    if (member.gate == Gate::channel) in.leaves["log_decay"] = decay_of(random, decay, rows);
    at::Tensor memory = random.normal({N, H, K, V});
    if (member.normalised) memory = at::cat({memory, random.uniform({N, H, K, 1}, 0.5, 1.5)}, -1);
    in.leaves["memory"] = memory;
    in.cotangents["o"] = random.normal({N, T, H, V});
    in.cotangents["final_state"] = random.normal({N, H, K, memory.size(-1)});
    in.what = std::string(member.mixers) + ", T " + std::to_string(T) + ", decay " + decay + ", beta " + beta + ", keys " + key;
    return in;
}

Result run(const Inputs& in, const Member& member, ops::Backend backend, at::ScalarType type = at::kDouble) {
    Tensors x;
    for (const auto& [name, value] : in.leaves) x[name] = leaf(value, type);
    ops::RecurrenceInput input;
    input.q = x.at("q");
    input.k = x.at("k");
    input.u = member.erase ? x.at("beta") * x.at("v") : x.at("v");
    if (member.erase) input.e = x.at("beta") * x.at("k");
    if (member.normalised) input.u = at::pad(input.u, {0, 1}, "constant", 1.0);
    if (x.count("log_decay")) input.log_decay = x.at("log_decay");
    input.initial_state = x.at("memory");
    input.scale = 1 / std::sqrt(static_cast<double>(K));
    const ops::RecurrenceOutput out = ops::recurrence(input, backend);
    Result result;
    // A query may find its memory faded away: the mixer's eps keeps the division finite.
    result.outputs["o"] = member.normalised ? out.o.narrow(-1, 0, V) / (out.o.narrow(-1, V, 1) + 1e-6) : out.o;
    result.outputs["final_state"] = out.final_state;
    result.gradients = gradients(x, result.outputs, in.cotangents);
    return result;
}

}  // namespace

TEST_CASE("every member: chunk form and fp32 on strong decays, close keys and strong writes", "[recurrence]") {
    std::uint64_t seed = 1000;
    for (const Member& member : members) {
        for (const std::int64_t T : {1, 2, 15, 16, 17, 63, 64, 65, 100}) {
            for (const std::string& decay : decays) {
                if (member.gate == Gate::none && decay != "mild") continue;
                for (const std::string& key : keys) {
                    ++seed;  // strengths take turns: every one meets every decay and every kind of key
                    if (member.erase || key == "gaussian" || key == "repeated") {
                        const Inputs in = draw(seed, member, T, decay, member.erase ? strengths[seed % 4] : "none", key);
                        INFO(in.what);
                        const Result exact = run(in, member, ops::Backend::reference);
                        const double factor = in.leaves.count("log_decay") ? depth(in.leaves.at("log_decay")) : 1;
                        compare(run(in, member, ops::Backend::chunk), exact, fp64, factor);
                        // Where few keys weigh, the average that a normaliser makes depends on q by a difference that nearly
                        // cancels.
                        const double cancels = member.normalised ? 5 : 1;
                        compare(run(in, member, ops::Backend::chunk, at::kFloat), exact, fp32_chunk, factor * cancels);
                        compare(run(in, member, ops::Backend::reference, at::kFloat), exact, {1e-5, 2e-5, 1e-4}, cancels);
                    }
                }
            }
            ++seed;
        }
    }
}

TEST_CASE("pitfall 14 and 20: members of the family reduce to one another", "[recurrence][pitfall]") {
    for (const ops::Backend backend : both) {
        for (const bool erase : {true, false}) {
            const Case channel = random_case(51, {2, 70, 2, 8, 6, 1}, Gate::channel, erase, true);
            INFO(name_of(backend) << (erase ? ", erase" : ""));

            // KDA to Gated DeltaNet, GLA to simple GLA: a gate that is the same for all channels is a gate per head.
            Case scalar = channel, wide = channel;
            scalar.inputs["log_decay"] = channel.inputs.at("log_decay").select(-1, 0);
            wide.inputs["log_decay"] = channel.inputs.at("log_decay").narrow(-1, 0, 1).expand({2, 70, 2, 8});
            Result a = run_case(wide, backend);
            a.gradients["log_decay"] = a.gradients["log_decay"].sum(-1);
            compare(a, run_case(scalar, backend), fp64);

            // Gated DeltaNet to DeltaNet, simple GLA to linear attention: no decay is a decay of zero.
            Case none = scalar;
            none.inputs.erase("log_decay");
            for (Case zero : {wide, scalar}) {
                zero.inputs["log_decay"] = at::zeros_like(zero.inputs["log_decay"]);
                a = run_case(zero, backend);
                a.gradients.erase("log_decay");
                compare(a, run_case(none, backend), fp64);
            }
            if (!erase) continue;

            // DeltaNet to linear attention, Gated DeltaNet to simple GLA, KDA to GLA: no erase is an erase vector of zero.
            for (const Case& with : {none, scalar, wide}) {
                Case empty = with, additive = with;
                empty.inputs["e"] = at::zeros_like(with.inputs.at("e"));
                additive.inputs.erase("e");
                a = run_case(empty, backend);
                a.gradients.erase("e");
                compare(a, run_case(additive, backend), fp64);
            }

            // A second micro-step that writes nothing is not there.
            Case twice = scalar, once = scalar;
            twice.micro_steps = 2;
            for (const char* name : {"k", "u", "e", "log_decay"}) {
                const at::Tensor x = scalar.inputs.at(name);
                twice.inputs[name] = at::stack({x, at::zeros_like(x)}, 2).flatten(1, 2);
            }
            twice.cotangents.erase("residual");
            once.cotangents.erase("residual");
            Result two = run_case(twice, backend), one = run_case(once, backend);
            for (Result* r : {&two, &one}) r->outputs.erase("residual");
            for (const char* name : {"k", "u", "e", "log_decay"}) {
                two.gradients[name] = two.gradients[name].unflatten(1, {70, 2}).select(2, 0);
            }
            compare(two, one, fp64);
        }
    }
}

TEST_CASE("pitfall 41: a fixed decay per head is retention, in its parallel form", "[recurrence][pitfall]") {
    // o_i = s sum_{j <= i} gamma^(i-j) (q_i . k_j) v_j + s gamma^(i+1) S_0^T q_i, gamma_h = 1 - 2^(-5-h).
    Random random(61);
    const std::int64_t T = 100, heads = 3;
    const Tensors x = {{"q", leaf(random.normal({2, T, heads, 8}))},
                       {"k", leaf(random.normal({2, T, heads, 8}))},
                       {"u", leaf(random.normal({2, T, heads, 6}))},
                       {"initial_state", leaf(random.normal({2, heads, 8, 6}))}};
    const at::Tensor gamma = 1 - at::exp2(-5 - at::arange(heads, x.at("q").options().requires_grad(false)));
    const at::Tensor t = at::arange(T, gamma.options()), apart = t.unsqueeze(1) - t;
    const at::Tensor weight = at::pow(gamma.view({heads, 1, 1}), apart.clamp_min(0)).tril();
    const auto by_head = [](const at::Tensor& y) { return y.transpose(1, 2); };
    const double scale = 1 / std::sqrt(8.0);
    const at::Tensor q = by_head(x.at("q")), pairs = at::matmul(q, by_head(x.at("k")).transpose(-1, -2)) * weight;
    const at::Tensor faded = at::pow(gamma.view({heads, 1, 1}), (t + 1).view({T, 1}));
    Result expected;
    expected.outputs["o"] = by_head(scale * (at::matmul(pairs, by_head(x.at("u"))) + faded * at::matmul(q, x.at("initial_state"))));
    const Tensors cotangents = {{"o", random.normal({2, T, heads, 6})}};
    expected.gradients = gradients(x, expected.outputs, cotangents);
    for (const ops::Backend backend : both) {
        INFO(name_of(backend));
        Case c;
        c.scale = scale;
        Tensors inputs = x;
        inputs["log_decay"] = gamma.log().expand({2, T, heads});
        Result found;
        found.outputs = outputs_of(ops::recurrence(make_input(inputs, c), backend));
        found.gradients = gradients(x, found.outputs, cotangents);
        compare(found, expected, fp64);
    }
}
