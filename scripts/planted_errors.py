"""The errors that plant_errors.py plants: what is wrong, the file, a text that stands in it exactly once, and what takes its place.

One sign, one term, one index each: what a slip of the hand or of the algebra would leave. Every one must fail a test.
"""

CHUNK = "src/ops/recurrence_chunk.cpp"
KERNEL = "src/ops/cpu/recurrence_kernel.cpp"
REFERENCE = "src/ops/recurrence_reference.cpp"
LAYERS = "src/ops/layers.cpp"


def mixer(name):
    return f"src/mixers/{name}"


ERRORS = [
    # The chunk form: what the rows of a chunk read of each other.
    ("no decay: a token is read before it is written", CHUNK, "return {at::matmul(q, kt).tril(), e", "return {at::matmul(q, kt).tril(-1), e"),
    ("no decay: future tokens are read", CHUNK, "return {at::matmul(q, kt).tril(), e", "return {at::matmul(q, kt), e"),
    ("no decay: sign of the erase", CHUNK, "e.defined() ? at::matmul(e, kt).tril(-1)", "e.defined() ? -at::matmul(e, kt).tril(-1)"),
    ("head decay: sign of the exponent", CHUNK, "square.tril(-1), G - G.transpose(-1, -2)", "square.tril(-1), G.transpose(-1, -2) - G"),
    ("head decay: not on the read", CHUNK, "return {at::matmul(q, kt) * weight,", "return {at::matmul(q, kt).tril(),"),
    ("head decay: not on the erase", CHUNK, "(at::matmul(e, kt) * weight).tril(-1)", "at::matmul(e, kt).tril(-1)"),
    ("head decay: what lies above the diagonal is not masked", CHUNK, ".masked_fill_(square.triu(1), never)", ""),
    ("channel decay: sign of the keys' exponent", CHUNK, "masked_exp(first - G.unsqueeze(-3)", "masked_exp(G.unsqueeze(-3) - first"),
    ("channel decay: the readers' factor is dropped", CHUNK, "(readers * (Gb - first).exp().unsqueeze(-3))", "readers"),
    ("channel decay: the first row of a block counts twice", CHUNK, "row.view({1, C, 1}) >= start", "row.view({1, C, 1}) > start"),
    ("channel decay: sign inside a block", CHUNK, "masked_exp(Gb.unsqueeze(-2) - Gb.unsqueeze(-3)", "masked_exp(Gb.unsqueeze(-3) - Gb.unsqueeze(-2)"),
    ("channel decay: blocks on the diagonal are dropped", CHUNK, "(below + diagonal.unsqueeze(-2) * place)", "below"),
    ("channel decay: a token is read before it is written", CHUNK, " + at::diag_embed((q * k).sum(-1))", ""),
    ("channel decay: the erase takes the readings of q", CHUNK, "E == 2 ? all.select(-3, 1)", "E == 2 ? all.select(-3, 0)"),
    # Its solve and the adjoint of that.
    ("erase solve: sign of L", CHUNK, "const at::Tensor inverse = invert(lower);", "const at::Tensor inverse = invert(lower.neg());"),
    ("erase solve, backward: not transposed", CHUNK, "at::matmul(saved[0].transpose(-1, -2), gradients[0])", "at::matmul(saved[0], gradients[0])"),
    ("erase solve, backward: sign of dL", CHUNK, ".neg_().tril_(-1), d_right", ".tril_(-1), d_right"),
    ("erase solve, backward: dL from dX, not from dY", CHUNK, "return {at::matmul(d_right, saved[1]", "return {at::matmul(gradients[0], saved[1]"),
    ("erase solve: forward substitution adds", KERNEL, "row[j] -= factor * above[j]", "row[j] += factor * above[j]"),
    # Its pass from chunk to chunk, and the read.
    ("state pass: no decay over a chunk", CHUNK, "(decays.empty() ? state : state * decays[z])", "state"),
    ("state pass: sign of what the state answers", CHUNK, "owns[z] - at::matmul(seens[z], state)", "owns[z] + at::matmul(seens[z], state)"),
    ("state pass: writes leave undecayed", CHUNK, "k_out = k * at::where(row < end - 1, last - G, at::Scalar(0.0)).exp();", ""),
    ("state pass: the initial state is ignored", CHUNK,
     "at::Tensor state = in.initial_state.defined() ? in.initial_state : at::zeros({N, H, K, V}, in.q.options());",
     "at::Tensor state = at::zeros({N, H, K, V}, in.q.options());"),
    ("read: the entering state is not decayed", CHUNK, "q_in = q * grown;", ""),
    ("read: the entering state is not decayed for the error", CHUNK, "e_in = e * grown;", "e_in = e;"),
    ("read: the entering state is left out", CHUNK, "at::matmul(q_in, at::stack(states, 2)) + ", ""),
    ("read: sign of the chunk's own writes", CHUNK, " + at::matmul(pairs.read, r)", " - at::matmul(pairs.read, r)"),
    ("read: the scale is left out", CHUNK, "at::Tensor q = in.q * in.scale;", "at::Tensor q = in.q;"),
    ("read: the first micro-step is read, not the last", CHUNK, "{0, 0, 0, 0, M - 1, 0}", "{0, 0, 0, 0, 0, M - 1}"),
    # Token by token: forward, its adjoint, and the operators of other devices.
    ("loops: the error is read before the decay", KERNEL, "sum[half][p] += e[a] * s;",
     "sum[half][p] += e[a] * (decay != nullptr ? s / decay[a * gate] : s);"),
    ("loops: sign of the erase", KERNEL, "r[p] -= sum[0][p] + sum[1][p];", "r[p] += sum[0][p] + sum[1][p];"),
    ("loops: the scale is left out", KERNEL, "(sum[0][p] + sum[1][p]) * in.scale", "(sum[0][p] + sum[1][p])"),
    ("loops: the initial state is ignored", KERNEL, "in.initial != nullptr && v < live ? in.initial[a * V + first + v] : T(0)", "T(0)"),
    ("adjoint: the read adds nothing to dS", KERNEL, "d += d_o[v] * qs[p];  // q is scaled", ""),
    ("adjoint: sign of de", KERNEL, "des[p] -= dr[v] * s;", "des[p] += dr[v] * s;"),
    ("adjoint: the erase takes nothing from dS", KERNEL, "d -= dr[v] * es[p];", ""),
    ("adjoint: dg from the decayed dS", KERNEL, "dgs[p] += d * s;\n                d *= as[p];", "d *= as[p];\n                dgs[p] += d * s;"),
    ("adjoint: dS does not decay", KERNEL, "d *= as[p];", ""),
    ("adjoint: the token's own write is missing from dq", KERNEL, "in.scale * (w.dq[a] + along * k[a])", "in.scale * w.dq[a]"),
    ("adjoint: the final state's cotangent is ignored", KERNEL, "d.final_state != nullptr && a < K ? d.final_state[a * V + v] : T(0)", "T(0)"),
    ("adjoint: states of a segment without their writes", KERNEL, "x += r[v] * k;", "x += 0 * r[v] * k;"),
    ("rows of other devices: sign of the erase", REFERENCE, "u[i] - at::matmul(e[i]", "u[i] + at::matmul(e[i]"),
    ("rows of other devices: sign of the write", REFERENCE, "state = state + k[i]", "state = state - k[i]"),
    # Layers.
    ("decay gate: it grows", LAYERS, "a_log.exp().neg()", "a_log.exp()"),
    ("norm, backward: sign of the part along y", LAYERS, "dy.addcmul(y, along, -1)", "dy.addcmul(y, along, 1)"),
    ("rotation: sign of the sine", LAYERS, "a * cosine - b * sine", "a * cosine + b * sine"),
    ("convolution: an old state does not reach its new one", "src/ops/conv.cpp", "padded.narrow(2, tokens, keep)", "padded.narrow(2, 0, keep)"),
    # What mixers share.
    ("heads: groups are tiled, not neighbours", mixer("heads.h"),
     "x.unsqueeze(3).expand({x.size(0), x.size(1), x.size(2), groups, x.size(3)})", "x.unsqueeze(2).expand({x.size(0), x.size(1), groups, x.size(2), x.size(3)})"),
    ("heads: the state is not continued", mixer("heads.h"), "if (state && (*state)[\"memory\"].defined()) input.initial_state", "if (false) input.initial_state"),
    ("heads: silu and sigmoid of the output gate are exchanged", mixer("heads.h"), "form_.gate == OutputGate::silu ?", "form_.gate != OutputGate::silu ?"),
    ("gates: sign of the bounded gate", mixer("gates.h"), "bound_ * at::sigmoid(", "-bound_ * at::sigmoid("),
    ("kernel attention: the normaliser is empty", mixer("kernel.h"), "at::cat({u, at::ones({1}, u.options())", "at::cat({u, at::zeros({1}, u.options())"),
    ("kernel attention: a new largest key raises the memory", mixer("kernel.h"), "input.log_decay = before - largest;", "input.log_decay = largest - before;"),
    # The mixers.
    ("base_conv: the input is not added", mixer("base_conv.cpp"), "return mixed * gate + x;", "return mixed * gate;"),
    ("softmax: the scale is left out", mixer("softmax.cpp"), "norm_ == QkNorm::l2 ? root : 1 / root", "norm_ == QkNorm::l2 ? root : 1"),
    ("softmax: a cache sees one token of the future", mixer("softmax.cpp"), ".tril(seen - fresh)", ".tril(seen - fresh + 1)"),
    ("softmax: new keys are put before the old", mixer("softmax.cpp"), "at::cat({cache, fresh}, 3)", "at::cat({fresh, cache}, 3)"),
    ("linear: the scale is left out", mixer("linear.cpp"), "input.scale = 1 / std::sqrt(static_cast<double>(key_));", ""),
    ("linear: elu without its 1", mixer("linear.cpp"), "input.k = at::elu(input.k) + 1;", "input.k = at::elu(input.k);"),
    ("linear: dpfp with -max(x, 0)", mixer("linear.cpp"), "at::cat({at::relu(x), at::relu(-x)}, -1)", "at::cat({at::relu(x), -at::relu(x)}, -1)"),
    ("linear: dpfp of neighbour 0", mixer("linear.cpp"), "for (std::int64_t j = 1; j <= nu; ++j)", "for (std::int64_t j = 0; j < nu; ++j)"),
    ("linear: taylor counts a square twice", mixer("linear.cpp"), ".masked_fill_(i == j, 1 / (std::numbers::sqrt2 * root))", ""),
    ("linear: taylor's first order is scaled wrong", mixer("linear.cpp"), "x / std::sqrt(root)", "x / root"),
    ("performer: the length counts twice", mixer("performer.cpp"), "0.5 * x.square().sum(-1, true)", "x.square().sum(-1, true)"),
    ("performer: the length does not count", mixer("performer.cpp"), "return h - 0.5", "return h + 0 * 0.5"),
    ("performer: queries are not scaled by D^-1/4", mixer("performer.cpp"), "std::pow(static_cast<double>(head_), -0.25)", "std::pow(static_cast<double>(head_), -0.5)"),
    ("retnet: the decay grows", mixer("retnet.cpp"), "at::log1p(-at::exp2(", "at::log1p(at::exp2("),
    ("retnet: every head forgets alike", mixer("retnet.cpp"), "at::exp2(-(head + static", "at::exp2(-(0 * head + static"),
    ("retnet: the scale is left out", mixer("retnet.cpp"), "input.scale = 1 / std::sqrt(static_cast<double>(key_));", ""),
    ("retnet: keys are not rotated", mixer("retnet.cpp"), "input.k = ops::rotary(input.k, context.position);", ""),
    ("mamba2: the time step does not scale the write", mixer("mamba2.cpp"), "input.u = gate_.time_step(rate) * values;", "input.u = values;"),
    ("mamba2: the decay is left out", mixer("mamba2.cpp"), "input.log_decay = gate_(rate);", ""),
    ("mamba2: queries are keys", mixer("mamba2.cpp"), "input.q = repeat_heads(part(inner + keys,", "input.q = repeat_heads(part(inner,"),
    ("mamba2: the skip is left out", mixer("mamba2.cpp"), "(o + (*skip_)", "(o + 0 * (*skip_)"),
    ("gla: sign of the gate's logits", mixer("gla.cpp"), "at::log_sigmoid(logits)", "at::log_sigmoid(-logits)"),
    ("gla: the scale is left out", mixer("gla.cpp"), "input.scale = 1 / std::sqrt(static_cast<double>(key_));", ""),
    ("gla: the gate is not scaled", mixer("gla.cpp"), " / options_.gate_scale;", ";"),
    ("delta: the erase is not scaled by beta", mixer("delta.cpp"), "input.e = beta * input.k;", ""),
    ("delta: queries are not normed", mixer("delta.cpp"), "input.q = normed(activated(q_(x, state, false), options_.qk_activation));",
     "input.q = activated(q_(x, state, false), options_.qk_activation);"),
    ("delta: beta stays below 1", mixer("delta.cpp"), "beta = 2 * beta;", "{}"),
    ("gated_delta: sign of the gate", mixer("gated_delta.cpp"), "input.log_decay = decay_(rate_(x));", "input.log_decay = -decay_(rate_(x));"),
    ("gated_delta: the write is not scaled by beta", mixer("gated_delta.cpp"), "input.u = beta * v_(x, state);", "input.u = v_(x, state);"),
    ("gated_delta: the scale is left out", mixer("gated_delta.cpp"), "input.scale = 1 / std::sqrt(static_cast<double>(key_));", ""),
    ("kda: sign of the gate", mixer("kda.cpp"), "input.log_decay = decay_(", "input.log_decay = -decay_("),
    ("kda: the erase is left out", mixer("kda.cpp"), "input.e = beta * input.k;", ""),
    ("kda: keys are not normed", mixer("kda.cpp"), "repeat_heads(ops::l2_norm(k_(x, state)), groups)", "repeat_heads(k_(x, state), groups)"),
    ("kda: the scale is left out", mixer("kda.cpp"), "input.scale = 1 / std::sqrt(static_cast<double>(key_));", ""),
]
