// Mixers that are special cases of one another: with the same weights, and a gate held where it does nothing, they are the same
// function.
#include "parts.h"

#include <ATen/ops/exp2.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/log1p.h>

using namespace palimpsest;
using namespace palimpsest::conformance;

namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

// Fills the parameters of `to` with those of `from`.
void copy(const Parts& from, const Parts& to, const std::vector<std::string>& names) {
    for (const std::string& name : names) to[name].copy_(from[name]);
}

const std::vector<std::string> delta_names = {"q.weight",      "k.weight",    "v.weight",        "q_conv.kernel", "k_conv.kernel",
                                              "v_conv.kernel", "beta.weight", "out_norm.weight", "out.weight"};

}  // namespace

TEST_CASE("KDA with one gate for all features of a head is Gated DeltaNet") {
    const Options shape = {{"value_heads", "4"}, {"expand_k", "0.75"}, {"expand_v", "1.5"}, {"out_gate", "false"}};
    Parts kda({"kda", shape, false}), gdn({"gated_delta", shape, false});
    copy(gdn, kda, delta_names);
    copy(gdn, kda, {"a_log"});
    const at::Tensor one = kda["rate.weight"].unflatten(-1, {4, 6}).select(-1, 0).clone();  // [V, HV]
    gdn["rate.weight"].copy_(at::matmul(kda["rate_down.weight"], one));
    kda["rate.weight"].copy_(one.unsqueeze(-1).expand({6, 4, 6}).flatten(1));
    kda["dt_bias"].copy_(gdn["dt_bias"].unsqueeze(-1).expand({4, 6}).flatten());
    const at::Tensor x = noise({2, 70, width}, 8, at::kDouble);
    CHECK(within(kda.forward(x), gdn.forward(x), 1e-12));
}

TEST_CASE("pitfall 20: Gated DeltaNet that forgets nothing is DeltaNet", "[pitfall]") {
    for (const char* negative : {"false", "true"}) {
        Parts gdn({"gated_delta",
                   {{"expand_k", "1"}, {"expand_v", "1"}, {"out_gate", "false"}, {"negative_eigenvalues", negative}},
                   false});
        Parts delta({"delta", {{"negative_eigenvalues", negative}}, false});
        copy(delta, gdn, delta_names);
        gdn["a_log"].fill_(-1000);  // a rate of zero
        const at::Tensor x = noise({2, 70, width}, 9, at::kDouble);
        CHECK(within(gdn.forward(x), delta.forward(x), 1e-12));
    }
}

TEST_CASE("GLA with a fixed gate per head is retention without rotation") {
    if (!find_mixer("retnet")) return;
    Parts gla({"gla", {{"expand_v", "2"}, {"expand_k", "1"}}, false}), retnet({"retnet", {{"rotary", "false"}}, false});
    copy(retnet, gla, {"q.weight", "k.weight", "v.weight", "gate.weight", "out_norm.weight", "out.weight"});
    const at::Tensor g = at::log1p(-at::exp2(-5 - at::arange(2, gla["decay.bias"].options())));  // by head
    gla["decay.weight"].zero_();
    // logsigmoid(b) / 16 = g
    gla["decay.bias"].copy_(-at::expm1(-16 * g).log().unsqueeze(-1).expand({2, 8}).flatten());
    const at::Tensor x = noise({2, 70, width}, 10, at::kDouble);
    CHECK(within(gla.forward(x), retnet.forward(x), 1e-12));
}
