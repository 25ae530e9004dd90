// Both forms against values that public references computed.
#include "support.h"

using namespace palimpsest;
using namespace palimpsest::test;

namespace {

at::Tensor column(const at::Tensor& x) { return x.unsqueeze(-1); }

// The recurrence's inputs from a reference's own inputs.
using Bind = std::function<ops::RecurrenceInput(Tensors&)>;

ops::RecurrenceInput base(Tensors& x) {
    ops::RecurrenceInput in;
    in.q = x.at("q");
    in.k = x.at("k");
    in.u = x.at("v");
    if (x.count("g")) in.log_decay = x.at("g");
    if (x.count("initial_state")) in.initial_state = x.at("initial_state");
    in.scale = 1 / std::sqrt(static_cast<double>(in.q.size(-1)));
    return in;
}

ops::RecurrenceInput with_beta(Tensors& x) {
    ops::RecurrenceInput in = base(x);
    in.e = column(x.at("beta")) * in.k;
    in.u = column(x.at("beta")) * in.u;
    return in;
}

const std::map<std::string, Bind> bindings = {
    {"linear", base},
    {"scalar_decay", base},
    {"scalar_decay_spike", base},
    {"gla", base},
    {"gla_strong", base},
    {"retention",
     [](Tensors& x) {
         ops::RecurrenceInput in = base(x);
         const at::Tensor head = at::arange(in.q.size(2), in.q.options());
         in.log_decay = at::log1p(at::exp2(-5 - head).neg()).expand({in.q.size(0), in.q.size(1), in.q.size(2)});
         return in;
     }},
    {"ssd",
     [](Tensors& x) {
         ops::RecurrenceInput in;
         in.q = x.at("C");
         in.k = x.at("B");
         in.u = column(x.at("dt")) * x.at("x");
         in.log_decay = x.at("dt") * x.at("A");
         in.initial_state = x.at("initial_state");
         return in;
     }},
    {"delta", with_beta},
    {"delta_beta2", with_beta},
    {"gated_delta", with_beta},
    {"gated_delta_spike", with_beta},
    {"kda", with_beta},
    {"kda_strong", with_beta},
    {"gdn2",
     [](Tensors& x) {
         ops::RecurrenceInput in = base(x);
         in.e = x.at("b") * in.k;
         in.u = x.at("w") * in.u;
         return in;
     }},
    {"comba",
     [](Tensors& x) {
         ops::RecurrenceInput in = base(x);
         in.e = column(x.at("beta")) * x.at("p");
         in.u = column(x.at("beta")) * in.u;
         return in;
     }},
    {"gated_delta_product2",
     [](Tensors& x) {
         ops::RecurrenceInput in = with_beta(x);
         in.scale = 1;
         in.micro_steps = 2;
         // One decay a token, on its first micro-step.
         in.log_decay = at::stack({x.at("g"), at::zeros_like(x.at("g"))}, 2).flatten(1, 2);
         return in;
     }},
};

bool is_input(const std::string& name, const Tensors& all) {
    return name != "o" && name != "do" && name != "final_state" && name != "dfinal_state" && all.count("d" + name) != 0;
}

void compare(const std::string& group, ops::Backend backend) {
    const Tensors all = golden(group);
    Tensors inputs;
    for (const auto& [name, x] : all) {
        if (is_input(name, all)) inputs[name] = leaf(x);
    }
    REQUIRE(inputs.size() >= 3);
    const ops::RecurrenceOutput out = ops::recurrence(bindings.at(group)(inputs), backend);
    CHECK(distance(out.o, all.at("o")) < 1e-12);
    Tensors cotangents = {{"o", all.at("do")}};
    if (all.count("final_state")) {
        CHECK(distance(out.final_state, all.at("final_state")) < 1e-12);
        cotangents["final_state"] = all.at("dfinal_state");
    }
    for (const auto& [name, d] : gradients(inputs, {{"o", out.o}, {"final_state", out.final_state}}, cotangents)) {
        INFO("gradient of " << name);
        CHECK(distance(d, all.at("d" + name)) < 1e-11);
    }
}

}  // namespace

TEST_CASE("recurrences equal public references", "[recurrence][golden]") {
    for (const auto& [group, bind] : bindings) {
        for (const auto& [name, backend] :
             {std::pair{"reference", ops::Backend::reference}, std::pair{"chunk", ops::Backend::chunk}}) {
            INFO(group << ", " << name);
            compare(group, backend);
        }
    }
}

TEST_CASE("a column of ones is the normaliser", "[recurrence][golden]") {
    const Tensors all = golden("linear_normalised");
    for (const ops::Backend backend : {ops::Backend::reference, ops::Backend::chunk}) {
        Tensors inputs = {{"q", leaf(all.at("q"))}, {"k", leaf(all.at("k"))}, {"v", leaf(all.at("v"))}};
        ops::RecurrenceInput in = base(inputs);
        in.scale = 1;
        in.u = at::pad(in.u, {0, 1}, "constant", 1.0);
        const at::Tensor y = ops::recurrence(in, backend).o;
        const std::int64_t V = all.at("v").size(-1);
        // The public scale K^-1/2 multiplies q in the numerator and the denominator; it cancels but for their 1e-10.
        const at::Tensor o = y.narrow(-1, 0, V) / (y.narrow(-1, V, 1) + 1e-10 * std::sqrt(static_cast<double>(in.q.size(-1))));
        CHECK(distance(o, all.at("o")) < 1e-9);
        for (const auto& [name, d] : gradients(inputs, {{"o", o}}, {{"o", all.at("do")}})) {
            INFO("gradient of " << name);
            CHECK(distance(d, all.at("d" + name)) < 1e-9);
        }
    }
}
