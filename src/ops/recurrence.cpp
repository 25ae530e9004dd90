#include "ops/recurrence.h"

#include "core/error.h"
#include "core/log.h"
#include "ops/shape.h"

#include <atomic>
#include <initializer_list>

namespace palimpsest::ops {

namespace {

void expect(const char* name, const at::Tensor& x, std::initializer_list<std::int64_t> sizes, const char* layout,
            const at::Tensor& q) {
    if (x.sizes() != at::IntArrayRef(sizes)) {
        fail(ExitCode::usage, "recurrence: {} is {}; with q {} it must be {} = [{}]", name, shape_text(x), shape_text(q), layout,
             fmt::join(sizes.begin(), sizes.end(), ", "));
    }
    if (x.device() != q.device()) fail(ExitCode::usage, "recurrence: {} and q are on different devices", name);
}

void check(const RecurrenceInput& in) {
    if (!in.q.defined() || !in.k.defined() || !in.u.defined()) fail(ExitCode::usage, "recurrence: q, k and u are required");
    if (in.q.dim() != 4) fail(ExitCode::usage, "recurrence: q is {}; it must be [N, T, H, K]", shape_text(in.q));
    if (in.u.dim() != 4) fail(ExitCode::usage, "recurrence: u is {}; it must be [N, T*M, H, V]", shape_text(in.u));
    if (in.micro_steps < 1) fail(ExitCode::usage, "recurrence: micro_steps is {}; it must be at least 1", in.micro_steps);
    if (in.chunk < 16 || in.chunk % 16 != 0)
        fail(ExitCode::usage, "recurrence: chunk is {}; it must be a multiple of 16", in.chunk);
    const std::int64_t N = in.q.size(0), rows = in.q.size(1) * in.micro_steps, H = in.q.size(2), K = in.q.size(3), V = in.u.size(3);
    expect("k", in.k, {N, rows, H, K}, "[N, T*M, H, K]", in.q);
    expect("u", in.u, {N, rows, H, V}, "[N, T*M, H, V]", in.q);
    if (in.e.defined()) expect("e", in.e, {N, rows, H, K}, "[N, T*M, H, K]", in.q);
    if (in.log_decay.defined()) {
        if (in.log_decay.dim() == 4) expect("log_decay", in.log_decay, {N, rows, H, K}, "[N, T*M, H, K]", in.q);
        else expect("log_decay", in.log_decay, {N, rows, H}, "[N, T*M, H]", in.q);
    }
    if (in.initial_state.defined()) expect("initial_state", in.initial_state, {N, H, K, V}, "[N, H, K, V]", in.q);
}

// Chooses the backend as measured in docs/recurrence.md. On the CPU the loops win by two to thirty times at the sizes of small
// models; with wide heads and no channel decay they are even with batched products, and slower without an erase. On other devices a
// row of the token-by-token form costs several launches, and a chunk of 64 rows about as many.
Backend automatic_backend(const RecurrenceInput& in) {
    const std::int64_t rows = in.k.size(1);
    if (!in.q.is_cpu()) return rows <= 4 ? Backend::reference : Backend::chunk;
    const bool channel = in.log_decay.defined() && in.log_decay.dim() == 4;
    const bool wide = in.q.size(3) >= 128 && in.u.size(3) >= 128;
    return wide && !channel && !in.e.defined() && rows >= 16 ? Backend::chunk : Backend::reference;
}

// Logs the choice of `auto` at level debug, once for each choice.
void announce(Backend backend, const RecurrenceInput& in) {
    static std::atomic_flag reference_said, chunk_said;
    if ((backend == Backend::reference ? reference_said : chunk_said).test_and_set()) return;
    log_debug("run.backend: auto takes the {} for {} tokens, heads of {} x {}, on {}",
              backend == Backend::reference ? "token-by-token form" : "chunk form", in.q.size(1), in.q.size(3), in.u.size(3),
              in.q.is_cpu() ? "the CPU" : "the GPU");
}

// Widens to the type of the recurrence: fp32, or fp64 when q is fp64.
at::Tensor widened(const at::Tensor& x, at::ScalarType type) { return x.defined() ? x.to(type) : x; }

}  // namespace

RecurrenceOutput recurrence(const RecurrenceInput& input, Backend backend, bool with_residual) {
    check(input);
    const at::ScalarType type = input.q.scalar_type(), wide = type == at::kDouble ? at::kDouble : at::kFloat;
    RecurrenceInput in = input;
    for (at::Tensor* x : {&in.q, &in.k, &in.u, &in.e, &in.log_decay, &in.initial_state}) *x = widened(*x, wide);
    if (backend == Backend::automatic) {
        backend = automatic_backend(in);
        announce(backend, in);
    }
    if (in.q.size(1) == 0) backend = Backend::reference;  // an empty sequence leaves S_T = S_0
    RecurrenceOutput out;
    switch (backend) {
        case Backend::reference: out = recurrence_reference(in, with_residual); break;
        case Backend::chunk: out = recurrence_chunk(in, with_residual); break;
        default: fail(ExitCode::usage, "run.backend: fused is not built yet; use auto, reference or chunk");
    }
    out.o = out.o.to(type);
    if (with_residual) out.residual = out.residual.to(type);
    return out;
}

}  // namespace palimpsest::ops
