"""The models of `palimpsest bench step` written in plain PyTorch, from the config that its --json gives; no kernel of anybody's."""

import torch
import torch.nn.functional as F
from torch import nn


# ---- the delta rule in chunks ----------------------------------------------------------------------------------------------------------

def lower_inverse_by_rows(lower):
    """(I + L)^-1 for strictly lower triangular L [..., C, C], by forward substitution one row after the other."""
    size = lower.shape[-1]
    inverse = -lower
    for i in range(1, size):
        inverse[..., i, :i] = inverse[..., i, :i].clone() + (inverse[..., i, :, None].clone() * inverse[..., :, :i].clone()).sum(-2)
    return inverse + torch.eye(size, dtype=lower.dtype)


def lower_inverse_by_solve(lower):
    identity = torch.eye(lower.shape[-1], dtype=lower.dtype)
    return torch.linalg.solve_triangular(lower + identity, identity.expand_as(lower), upper=False, unitriangular=True)


def gated_delta_chunks(q, k, v, beta, g, inverse, chunk=64):
    """S_t = exp(g_t) S_{t-1} + beta_t k_t (v_t - exp(g_t) S_{t-1}^T k_t)^T, o_t = S_t^T q_t / sqrt K. q, k [B, T, H, K], v [B, T, H, V],
    beta and g [B, T, H] -> [B, T, H, V]."""
    length, width = q.shape[1], q.shape[-1]
    chunk = min(chunk, length)
    padding = -length % chunk

    def split(x):  # [B, T, H, D] -> [B, H, chunks, C, D]
        return F.pad(x, (0, 0, 0, 0, 0, padding)).transpose(1, 2).unflatten(2, (-1, chunk))

    q, k, v, beta, g = (split(x) for x in (q * width ** -0.5, k, v, beta[..., None], g[..., None]))
    depth = g.squeeze(-1).cumsum(-1)  # [B, H, chunks, C]
    upper = torch.ones(chunk, chunk, dtype=torch.bool).triu(1)
    fading = (depth[..., :, None] - depth[..., None, :]).masked_fill(upper, float("-inf")).exp()
    lower = ((k * beta) @ k.transpose(-1, -2) * fading).tril(-1)
    solved = inverse(lower)
    values, seen = solved @ (v * beta), solved @ (k * beta * depth.exp()[..., None])
    reads = q @ k.transpose(-1, -2) * fading

    state = q.new_zeros(*q.shape[:2], width, v.shape[-1])
    outputs = []
    for z in range(q.shape[2]):
        end = depth[:, :, z, -1, None, None]
        fresh = values[:, :, z] - seen[:, :, z] @ state
        outputs.append((q[:, :, z] * depth[:, :, z].exp()[..., None]) @ state + reads[:, :, z] @ fresh)
        state = state * end.exp() + (k[:, :, z] * (end - depth[:, :, z, :, None]).exp()).transpose(-1, -2) @ fresh
    return torch.cat(outputs, 2)[:, :, :length].transpose(1, 2)


def gated_delta_loop(q, k, v, beta, g):
    """The same, token by token."""
    state = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    outputs = []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp()[..., None, None]
        error = v[:, t] - (state * k[:, t][..., None]).sum(-2)
        state = state + (beta[:, t][..., None] * k[:, t])[..., None] * error[..., None, :]
        outputs.append((state * q[:, t][..., None]).sum(-2) * q.shape[3] ** -0.5)
    return torch.stack(outputs, 1)


INVERSES = {"rows": lower_inverse_by_rows, "solve": lower_inverse_by_solve}


# ---- attention -------------------------------------------------------------------------------------------------------------------------

def attention_by_sdpa(q, k, v):
    """Causal; all [B, H, T, D]."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def attention_by_matmul(q, k, v):
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    future = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v


ATTENTIONS = {"sdpa": attention_by_sdpa, "matmul": attention_by_matmul}


# ---- the model -------------------------------------------------------------------------------------------------------------------------

class Softmax(nn.Module):
    def __init__(self, width, options, way):
        super().__init__()
        need(options["qk_norm"] == "none", "softmax with a norm of queries and keys")
        self.heads, self.attend = options["heads"], ATTENTIONS[way]
        self.qkv = nn.Linear(width, 3 * width, bias=options["bias"])
        self.out = nn.Linear(width, width, bias=options["bias"])

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))


class HeadProjection(nn.Module):
    """Linear, causal depthwise convolution, SiLU, heads."""

    def __init__(self, width, heads, head, taps):
        super().__init__()
        self.heads = heads
        self.linear = nn.Linear(width, heads * head, bias=False)
        self.conv = nn.Conv1d(heads * head, heads * head, taps, groups=heads * head, padding=taps - 1, bias=False)

    def forward(self, x):
        y = self.conv(self.linear(x).transpose(1, 2))[..., :x.shape[1]].transpose(1, 2)
        return F.silu(y).unflatten(-1, (self.heads, -1))


class GatedDelta(nn.Module):
    def __init__(self, width, options, way):
        super().__init__()
        need(options["value_heads"] == 0 and not options["negative_eigenvalues"] and options["out_gate"] and options["short_conv"] > 0,
             "Gated DeltaNet but with one value head a head, a convolution, a gate at the output, and strengths below 1")
        heads, taps = options["heads"], options["short_conv"]
        key, value = round(width * options["expand_k"]) // heads, round(width * options["expand_v"]) // heads
        self.inverse = INVERSES[way]
        self.q, self.k = HeadProjection(width, heads, key, taps), HeadProjection(width, heads, key, taps)
        self.v = HeadProjection(width, heads, value, taps)
        self.beta, self.rate = nn.Linear(width, heads, bias=False), nn.Linear(width, heads, bias=False)
        self.a_log = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        self.dt_bias = nn.Parameter(torch.empty(heads).uniform_(0.001, 0.1).expm1().log())
        self.gate = nn.Linear(width, heads * value, bias=False)
        self.norm = nn.RMSNorm(value, eps=options["norm_eps"])
        self.out = nn.Linear(heads * value, width, bias=False)

    def forward(self, x):
        q, k = (y * torch.rsqrt((y * y).sum(-1, keepdim=True) + 1e-6) for y in (self.q(x), self.k(x)))
        g = -self.a_log.exp() * F.softplus(self.rate(x) + self.dt_bias)
        o = gated_delta_chunks(q, k, self.v(x), self.beta(x).sigmoid(), g, self.inverse)
        return self.out(self.norm(o).flatten(2) * F.silu(self.gate(x)))


MIXERS = {"softmax": Softmax, "gated_delta": GatedDelta}


class UnknownToPeer(Exception):
    pass


def need(condition, what):
    if not condition:
        raise UnknownToPeer(f"the peer does not know {what}")


class Model(nn.Module):
    """Embedding, learned positions or none, pre-norm blocks of a mixer each, norm, head."""

    def __init__(self, step, way):
        super().__init__()
        model, width = step["config"]["model"], step["width"]
        need(model["mlp"] == "none" and model["tied_head"] and model["positions"] in ("none", "learned"), "MLPs, heads of their own, rotary positions")
        need(model["embedding_dropout"] == model["residual_dropout"] == 0, "dropout")
        need(set(step["layers"]) <= set(MIXERS), f"mixers but {', '.join(MIXERS)}")
        norm = nn.LayerNorm if model["norm"] == "layer" else nn.RMSNorm
        self.embedding = nn.Embedding(step["vocabulary"], width)
        self.positions = nn.Embedding(step["length"], width) if model["positions"] == "learned" else None
        self.mixers = nn.ModuleList(MIXERS[name](width, step["config"]["mixers"][name], way) for name in step["layers"])
        self.norms = nn.ModuleList(norm(width, eps=model["norm_eps"]) for _ in step["layers"])
        self.final_norm = norm(width, eps=model["norm_eps"])
        for module in self.modules():
            if isinstance(module, (nn.Embedding, nn.Linear)):
                nn.init.normal_(module.weight, std=model["init_std"])

    def forward(self, tokens):
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[:tokens.shape[1]]
        for norm, mixer in zip(self.norms, self.mixers):
            x = x + mixer(norm(x))
        return self.final_norm(x) @ self.embedding.weight.T


# ---- checks ----------------------------------------------------------------------------------------------------------------------------

def gradients(function, inputs, weight):
    output = function(*inputs)
    return [output.detach(), *torch.autograd.grad((output * weight).sum(), inputs)]


def largest_difference(ours, theirs):
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-12)) for a, b in zip(ours, theirs, strict=True))


def differences():
    """(what, largest relative difference of outputs and gradients in fp64): the chunk form against the loop, sdpa against products."""
    torch.manual_seed(1)
    batch, heads, key, value = 2, 2, 6, 10
    for length in (1, 16, 64, 65, 150):
        q, k = (F.normalize(torch.randn(batch, length, heads, key, dtype=torch.float64), dim=-1) for _ in range(2))
        v = torch.randn(batch, length, heads, value, dtype=torch.float64)
        beta, g = torch.rand(batch, length, heads, dtype=torch.float64), -3 * torch.rand(batch, length, heads, dtype=torch.float64)
        inputs = [x.requires_grad_() for x in (q, k, v, beta, g)]
        weight = torch.randn_like(v)
        loop = gradients(gated_delta_loop, inputs, weight)
        for way, inverse in INVERSES.items():
            chunks = gradients(lambda *x: gated_delta_chunks(*x, inverse), inputs, weight)
            yield f"gated delta rule in chunks ({way}) and token by token, T {length}", largest_difference(chunks, loop)
    inputs = [torch.randn(2, 2, 37, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    weight = torch.randn(2, 2, 37, 8, dtype=torch.float64)
    yield "attention by sdpa and by products", largest_difference(gradients(attention_by_sdpa, inputs, weight),
                                                                  gradients(attention_by_matmul, inputs, weight))
