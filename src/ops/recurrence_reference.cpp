// The token-by-token form. On the CPU it is plain loops and the adjoint recurrence of the same order, in fp32 and fp64
// (cpu/recurrence_kernel.h). On other devices it is a few ATen operators a row, differentiated by autograd: right, and slow.
#include "core/error.h"
#include "ops/cpu/recurrence_kernel.h"
#include "ops/recurrence.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

namespace palimpsest::ops {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

namespace {

using MaybeTensor = std::optional<at::Tensor>;  // an argument of a Function that may be undefined

template <class T>
const T* data(const at::Tensor& x) {
    return x.defined() ? x.const_data_ptr<T>() : nullptr;
}
template <class T>
T* mutable_data(const at::Tensor& x) {
    return x.defined() ? x.mutable_data_ptr<T>() : nullptr;
}

at::Tensor dense(const at::Tensor& x) { return x.defined() ? x.contiguous() : x; }

// Returns the address where sequence n and head h of a tensor [N, rows, H, width] begin.
template <class P>
P at_head(P base, std::int64_t n, std::int64_t h, std::int64_t rows, std::int64_t heads, std::int64_t width) {
    return base == nullptr ? nullptr : base + (n * rows * heads + h) * width;
}

struct Sizes {
    cpu::RecurrenceShape shape;
    std::int64_t sequences = 0;

    Sizes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& u, const at::Tensor& decay) {
        sequences = q.size(0);
        shape.tokens = q.size(1);
        shape.micro_steps = q.size(1) == 0 ? 1 : k.size(1) / q.size(1);
        shape.heads = q.size(2);
        shape.key = q.size(3);
        shape.value = u.size(3);
        shape.channel = decay.defined() && decay.dim() == 4;
    }
    std::int64_t items() const { return sequences * shape.heads; }
    std::int64_t state() const { return shape.key * shape.value; }
    std::int64_t gates() const { return shape.channel ? shape.key : 1; }

    template <class T>
    cpu::RecurrenceInputs<T> inputs(std::int64_t item, const at::Tensor& q, const at::Tensor& k, const at::Tensor& u,
                                    const at::Tensor& e, const at::Tensor& decay, const at::Tensor& initial, double scale) const {
        const std::int64_t n = item / shape.heads, h = item % shape.heads, rows = shape.rows();
        cpu::RecurrenceInputs<T> in;
        in.q = at_head(data<T>(q), n, h, shape.tokens, shape.heads, shape.key);
        in.k = at_head(data<T>(k), n, h, rows, shape.heads, shape.key);
        in.u = at_head(data<T>(u), n, h, rows, shape.heads, shape.value);
        in.e = at_head(data<T>(e), n, h, rows, shape.heads, shape.key);
        in.decay = at_head(data<T>(decay), n, h, rows, shape.heads, gates());
        in.initial = initial.defined() ? data<T>(initial) + item * state() : nullptr;
        in.scale = static_cast<T>(scale);
        return in;
    }
};

// Calls f(item, scratch) for every sequence and head. The split over threads does not change a number.
template <class T, class F>
void for_items(const Sizes& sizes, const at::TensorOptions& options, const F& f) {
    at::parallel_for(0, sizes.items(), 1, [&](std::int64_t begin, std::int64_t end) {
        const at::Tensor scratch = at::empty({cpu::recurrence_scratch(sizes.shape)}, options);
        for (std::int64_t item = begin; item < end; ++item) f(item, scratch.mutable_data_ptr<T>());
    });
}

struct Loops : Function<Loops> {
    static variable_list forward(AutogradContext* context, const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& u_in,
                                 const MaybeTensor& e_in, const MaybeTensor& log_decay, const MaybeTensor& initial_in, double scale,
                                 bool differentiable) {
        const at::Tensor q = dense(q_in), k = dense(k_in), u = dense(u_in), e = dense(e_in.value_or(at::Tensor()));
        const at::Tensor initial = dense(initial_in.value_or(at::Tensor()));
        const at::Tensor decay = log_decay && log_decay->defined() ? log_decay->contiguous().exp() : at::Tensor();
        const Sizes sizes(q, k, u, decay);
        const cpu::RecurrenceShape& s = sizes.shape;
        const at::Tensor o = at::empty({sizes.sequences, s.tokens, s.heads, s.value}, q.options());
        const at::Tensor residual = at::empty({sizes.sequences, s.rows(), s.heads, s.value}, q.options());
        const at::Tensor final_state = at::empty({sizes.sequences, s.heads, s.key, s.value}, q.options());
        const at::Tensor saved =
            differentiable ? at::empty({sizes.items(), s.segments(), s.key, s.value}, q.options()) : at::Tensor();
        AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "recurrence", [&] {
            for_items<scalar_t>(sizes, q.options(), [&](std::int64_t item, scalar_t* scratch) {
                const std::int64_t n = item / s.heads, h = item % s.heads;
                cpu::RecurrenceOutputs<scalar_t> out;
                out.o = at_head(mutable_data<scalar_t>(o), n, h, s.tokens, s.heads, s.value);
                out.residual = at_head(mutable_data<scalar_t>(residual), n, h, s.rows(), s.heads, s.value);
                out.final_state = mutable_data<scalar_t>(final_state) + item * sizes.state();
                if (differentiable) out.saved = mutable_data<scalar_t>(saved) + item * s.segments() * sizes.state();
                cpu::recurrence_forward(s, sizes.inputs<scalar_t>(item, q, k, u, e, decay, initial, scale), out, scratch);
            });
        });
        context->set_materialize_grads(false);
        if (differentiable) context->save_for_backward({q, k, u, e, decay, initial, residual, saved});
        context->saved_data["scale"] = scale;
        return {o, final_state, residual};
    }

    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const variable_list saved_all = context->get_saved_variables();
        const at::Tensor &q = saved_all[0], &k = saved_all[1], &u = saved_all[2], &e = saved_all[3], &decay = saved_all[4];
        const at::Tensor &initial = saved_all[5], &residual = saved_all[6], &saved = saved_all[7];
        const double scale = context->saved_data["scale"].toDouble();
        const at::Tensor d_o = dense(gradients[0]), d_final = dense(gradients[1]), d_residual = dense(gradients[2]);
        const Sizes sizes(q, k, u, decay);
        const cpu::RecurrenceShape& s = sizes.shape;
        const at::Tensor dq = at::empty_like(q), dk = at::empty_like(k), du = at::empty_like(u);
        const at::Tensor de = e.defined() ? at::empty_like(e) : e, dg = decay.defined() ? at::empty_like(decay) : decay;
        const at::Tensor d_initial = initial.defined() ? at::empty_like(initial) : initial;
        AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "recurrence_backward", [&] {
            for_items<scalar_t>(sizes, q.options(), [&](std::int64_t item, scalar_t* scratch) {
                const std::int64_t n = item / s.heads, h = item % s.heads, rows = s.rows();
                cpu::RecurrenceCotangents<scalar_t> d;
                d.o = at_head(data<scalar_t>(d_o), n, h, s.tokens, s.heads, s.value);
                d.residual = at_head(data<scalar_t>(d_residual), n, h, rows, s.heads, s.value);
                d.final_state = d_final.defined() ? data<scalar_t>(d_final) + item * sizes.state() : nullptr;
                cpu::RecurrenceGradients<scalar_t> out;
                out.q = at_head(mutable_data<scalar_t>(dq), n, h, s.tokens, s.heads, s.key);
                out.k = at_head(mutable_data<scalar_t>(dk), n, h, rows, s.heads, s.key);
                out.u = at_head(mutable_data<scalar_t>(du), n, h, rows, s.heads, s.value);
                out.e = at_head(mutable_data<scalar_t>(de), n, h, rows, s.heads, s.key);
                out.log_decay = at_head(mutable_data<scalar_t>(dg), n, h, rows, s.heads, sizes.gates());
                out.initial = d_initial.defined() ? mutable_data<scalar_t>(d_initial) + item * sizes.state() : nullptr;
                cpu::recurrence_backward(s, sizes.inputs<scalar_t>(item, q, k, u, e, decay, initial, scale),
                                         at_head(data<scalar_t>(residual), n, h, rows, s.heads, s.value),
                                         data<scalar_t>(saved) + item * s.segments() * sizes.state(), d, out, scratch);
            });
        });
        return {dq, dk, du, de, dg, d_initial, {}, {}};
    }
};

}  // namespace

RecurrenceOutput recurrence_rows(const RecurrenceInput& in, bool with_residual) {
    const std::int64_t rows = in.k.size(1), micro_steps = in.micro_steps;
    const auto unbound = [](const at::Tensor& x) { return x.defined() ? x.unbind(1) : std::vector<at::Tensor>(); };
    const std::vector<at::Tensor> q = unbound(in.q), k = unbound(in.k), u = unbound(in.u), e = unbound(in.e);
    const std::vector<at::Tensor> decay = unbound(in.log_decay.defined() ? in.log_decay.exp() : at::Tensor());
    const at::Tensor nothing = at::zeros({in.q.size(0), in.q.size(2), in.q.size(3), in.u.size(3)}, in.q.options());
    at::Tensor state = in.initial_state.defined() ? in.initial_state : nothing;
    std::vector<at::Tensor> o, residual;
    for (std::int64_t row = 0; row < rows; ++row) {
        const auto i = static_cast<std::size_t>(row);
        if (!decay.empty()) state = state * (decay[i].dim() == 3 ? decay[i].unsqueeze(-1) : decay[i].unsqueeze(-1).unsqueeze(-1));
        const at::Tensor r = e.empty() ? u[i] : u[i] - at::matmul(e[i].unsqueeze(-2), state).squeeze(-2);
        state = state + k[i].unsqueeze(-1) * r.unsqueeze(-2);
        if (with_residual) residual.push_back(r);
        if ((row + 1) % micro_steps != 0) continue;
        o.push_back(at::matmul(q[static_cast<std::size_t>(row / micro_steps)].unsqueeze(-2), state).squeeze(-2) * in.scale);
    }
    return {at::stack(o, 1), state, with_residual ? at::stack(residual, 1) : at::Tensor()};
}

RecurrenceOutput recurrence_reference(const RecurrenceInput& in, bool with_residual) {
    if (!in.q.is_cpu() && in.q.size(1) > 0) return recurrence_rows(in, with_residual);
    const auto wants = [](const at::Tensor& x) { return x.defined() && x.requires_grad(); };
    const bool differentiable = at::GradMode::is_enabled() && (wants(in.q) || wants(in.k) || wants(in.u) || wants(in.e) ||
                                                               wants(in.log_decay) || wants(in.initial_state));
    const variable_list out = Loops::apply(in.q, in.k, in.u, MaybeTensor(in.e), MaybeTensor(in.log_decay),
                                           MaybeTensor(in.initial_state), in.scale, differentiable);
    return {out[0], out[1], with_residual ? out[2] : at::Tensor()};
}

}  // namespace palimpsest::ops
