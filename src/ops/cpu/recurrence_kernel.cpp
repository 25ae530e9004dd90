#include "ops/cpu/recurrence_kernel.h"

#include "ops/cpu/simd.h"

#include <algorithm>
#include <utility>

namespace palimpsest::ops::cpu {

namespace {

// A `Wide` vector is 64 bytes of T: one register of the widest machines, two or four of the others. Vectors are passed by reference
// only, because passing them by value differs between machines.
template <class T>
struct Wide {
    typedef T type __attribute__((vector_size(64)));
    typedef T loose __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
    static constexpr std::int64_t lanes = 64 / static_cast<std::int64_t>(sizeof(T));
};

// Calls f(0), f(1), ... f(P - 1) with constants. Arrays indexed by them live in registers, unlike in a loop that is unrolled later.
template <int P, class F>
PALIMPSEST_INLINE void parts(const F& f) {
    [&]<int... p>(std::integer_sequence<int, p...>) PALIMPSEST_INLINE_LAMBDA { (f(std::integral_constant<int, p>{}), ...); }
    (std::make_integer_sequence<int, P>{});
}

template <class T>
PALIMPSEST_INLINE void load(typename Wide<T>::type& x, const T* from) {
    x = *reinterpret_cast<const typename Wide<T>::loose*>(from);
}
template <class T>
PALIMPSEST_INLINE void store(T* to, const typename Wide<T>::type& x) {
    *reinterpret_cast<typename Wide<T>::loose*>(to) = x;
}

// Returns the sum of the elements, taken in a fixed order.
PALIMPSEST_INLINE float total(const Wide<float>::type& x) {
    typedef float V8 __attribute__((vector_size(32)));
    typedef float V4 __attribute__((vector_size(16)));
    const V8 a =
        __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) + __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
    const V4 b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
    const V4 c = b + __builtin_shufflevector(b, b, 2, 3, 2, 3);
    return c[0] + c[1];
}
PALIMPSEST_INLINE double total(const Wide<double>::type& x) {
    typedef double V4 __attribute__((vector_size(32)));
    typedef double V2 __attribute__((vector_size(16)));
    const V4 a = __builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7);
    const V2 b = __builtin_shufflevector(a, a, 0, 1) + __builtin_shufflevector(a, a, 2, 3);
    return b[0] + b[1];
}

template <class T>
constexpr std::int64_t padded(std::int64_t n) {
    return (n + Wide<T>::lanes - 1) / Wide<T>::lanes * Wide<T>::lanes;
}

// ---- forward: columns [first, first + P * lanes) of the state, S [key][P * lanes] ----

template <class T, int P>
PALIMPSEST_INLINE void forward_tile(const RecurrenceShape& shape, const RecurrenceInputs<T>& in, const RecurrenceOutputs<T>& out,
                                    std::int64_t first, T* __restrict S) {
    using Vec = typename Wide<T>::type;
    constexpr std::int64_t lanes = Wide<T>::lanes, width = P * lanes;
    const std::int64_t K = shape.key, V = shape.value, live = std::min(width, V - first), gate = shape.channel ? 1 : 0;
    const std::int64_t key_stride = shape.heads * K, value_stride = shape.heads * V, gate_stride = shape.heads * (gate ? K : 1);
    alignas(64) T edge[width] = {};  // copy of a row that reaches beyond V

    for (std::int64_t a = 0; a < K; ++a) {
        for (std::int64_t v = 0; v < width; ++v)
            S[a * width + v] = in.initial != nullptr && v < live ? in.initial[a * V + first + v] : T(0);
    }
    const auto put = [&](T* row, const Vec(&x)[P]) PALIMPSEST_INLINE_LAMBDA {
        if (live == width) {
            parts<P>([&](auto p) PALIMPSEST_INLINE_LAMBDA { store(row + p * lanes, x[p]); });
        } else {
            parts<P>([&](auto p) PALIMPSEST_INLINE_LAMBDA { store(edge + p * lanes, x[p]); });
            std::copy(edge, edge + live, row);
        }
    };
    for (std::int64_t row = 0; row < shape.rows(); ++row) {
        if (out.saved != nullptr && row % segment == 0) {
            T* to = out.saved + (row / segment) * K * V + first;
            for (std::int64_t a = 0; a < K; ++a) std::copy(S + a * width, S + a * width + live, to + a * V);
        }
        const T* k = in.k + row * key_stride;
        const T* decay = in.decay != nullptr ? in.decay + row * gate_stride : nullptr;
        Vec r[P];
        if (live == width) {
            parts<P>([&](auto p) PALIMPSEST_INLINE_LAMBDA { load<T>(r[p], in.u + row * value_stride + first + p * lanes); });
        } else {
            std::copy(in.u + row * value_stride + first, in.u + row * value_stride + first + live, edge);
            parts<P>([&](auto p) PALIMPSEST_INLINE_LAMBDA { load<T>(r[p], edge + p * lanes); });
        }
        // Decays the state and reads it for the error. Even and odd rows have a sum each: a single one would wait for itself.
        if (in.e != nullptr || decay != nullptr) {
            const T* e = in.e != nullptr ? in.e + row * key_stride : nullptr;
            Vec sum[2][P] = {};
            const auto visit = [&](std::int64_t a, int half) PALIMPSEST_INLINE_LAMBDA {
                parts<P>([&](auto p) PALIMPSEST_INLINE_LAMBDA {
                    Vec s;
                    load<T>(s, S + a * width + p * lanes);
                    if (decay != nullptr) {
                        s *= decay[a * gate];
                        store(S + a * width + p * lanes, s);
                    }
                    if (e != nullptr) sum[half][p] += e[a] * s;
                });
            };
            std::int64_t a = 0;
            for (; a + 1 < K; a += 2) {
                visit(a, 0);
                visit(a + 1, 1);
            }
            if (a < K) visit(a, 0);
            parts<P>([&](auto p) PALIMPSEST_INLINE_LAMBDA { r[p] -= sum[0][p] + sum[1][p]; });
        }
        if (out.residual != nullptr) put(out.residual + row * value_stride + first, r);
        // Writes, and on a token's last micro-step reads the output.
        const bool reads = (row + 1) % shape.micro_steps == 0;
        const std::int64_t token = row / shape.micro_steps;
        const T* q = in.q + token * key_stride;
        Vec sum[2][P] = {};
        const auto visit = [&](std::int64_t a, int half) PALIMPSEST_INLINE_LAMBDA {
            parts<P>([&](auto p) PALIMPSEST_INLINE_LAMBDA {
                Vec s;
                load<T>(s, S + a * width + p * lanes);
                s += k[a] * r[p];
                store(S + a * width + p * lanes, s);
                if (reads) sum[half][p] += q[a] * s;
            });
        };
        std::int64_t a = 0;
        for (; a + 1 < K; a += 2) {
            visit(a, 0);
            visit(a + 1, 1);
        }
        if (a < K) visit(a, 0);
        if (reads) {
            parts<P>([&](auto p) PALIMPSEST_INLINE_LAMBDA { sum[0][p] = (sum[0][p] + sum[1][p]) * in.scale; });
            put(out.o + token * value_stride + first, sum[0]);
        }
    }
    for (std::int64_t a = 0; a < K; ++a) std::copy(S + a * width, S + a * width + live, out.final_state + a * V + first);
}

template <class T>
PALIMPSEST_INLINE void forward(const RecurrenceShape& shape, const RecurrenceInputs<T>& in, const RecurrenceOutputs<T>& out,
                               T* scratch) {
    constexpr std::int64_t lanes = Wide<T>::lanes;
    for (std::int64_t first = 0; first < shape.value;) {
        const std::int64_t left = padded<T>(shape.value - first) / lanes;
        if (left >= 4) {
            forward_tile<T, 4>(shape, in, out, first, scratch);
            first += 4 * lanes;
        } else if (left >= 2) {
            forward_tile<T, 2>(shape, in, out, first, scratch);
            first += 2 * lanes;
        } else {
            forward_tile<T, 1>(shape, in, out, first, scratch);
            first += lanes;
        }
    }
}

// ---- backward ----

// Computes a row of the adjoint for the key features [first, first + P * lanes). `before` is S~, `adjoint` dS, both [V][stride].
template <class T, int P, bool reads>
PALIMPSEST_INLINE void adjoint_write(std::int64_t V, std::int64_t stride, const T* __restrict before, T* __restrict adjoint,
                                     const T* q, const T* k, const T* r, const T* d_o, T* __restrict dr, T* dq, T* dk) {
    using Vec = typename Wide<T>::type;
    constexpr std::int64_t lanes = Wide<T>::lanes;
    Vec qs[P], ks[P], dqs[P] = {}, dks[P] = {};
    parts<P>([&](auto p) PALIMPSEST_INLINE_LAMBDA {
        load<T>(ks[p], k + p * lanes);
        if (reads) load<T>(qs[p], q + p * lanes);
    });
    for (std::int64_t v = 0; v < V; ++v) {
        Vec part = {};
        parts<P>([&](auto p) PALIMPSEST_INLINE_LAMBDA {
            Vec d, s;
            load<T>(d, adjoint + v * stride + p * lanes);
            if (reads) {
                load<T>(s, before + v * stride + p * lanes);
                d += d_o[v] * qs[p];  // q is already scaled
                store(adjoint + v * stride + p * lanes, d);
                dqs[p] += d_o[v] * s;
            }
            dks[p] += r[v] * d;
            part += ks[p] * d;
        });
        dr[v] += total(part);
    }
    parts<P>([&](auto p) PALIMPSEST_INLINE_LAMBDA {
        store(dk + p * lanes, dks[p]);
        if (reads) store(dq + p * lanes, dqs[p]);
    });
}

template <class T, int P, bool erases, bool decays>
PALIMPSEST_INLINE void adjoint_erase(std::int64_t V, std::int64_t stride, const T* __restrict before, T* __restrict adjoint,
                                     const T* e, const T* decay, const T* dr, T* de, T* dg) {
    using Vec = typename Wide<T>::type;
    constexpr std::int64_t lanes = Wide<T>::lanes;
    Vec es[P], as[P], des[P] = {}, dgs[P] = {};
    parts<P>([&](auto p) PALIMPSEST_INLINE_LAMBDA {
        if (erases) load<T>(es[p], e + p * lanes);
        if (decays) load<T>(as[p], decay + p * lanes);
    });
    for (std::int64_t v = 0; v < V; ++v) {
        parts<P>([&](auto p) PALIMPSEST_INLINE_LAMBDA {
            Vec d, s;
            load<T>(d, adjoint + v * stride + p * lanes);
            load<T>(s, before + v * stride + p * lanes);
            if (erases) {
                des[p] -= dr[v] * s;
                d -= dr[v] * es[p];
            }
            if (decays) {
                dgs[p] += d * s;
                d *= as[p];
            }
            store(adjoint + v * stride + p * lanes, d);
        });
    }
    parts<P>([&](auto p) PALIMPSEST_INLINE_LAMBDA {
        if (erases) store(de + p * lanes, des[p]);
        if (decays) store(dg + p * lanes, dgs[p]);
    });
}

// `Workspace` is the scratch of the backward pass, with all rows padded to whole vectors.
template <class T>
struct Workspace {
    std::int64_t K, V;
    T *adjoint, *states, *q, *k, *e, *decay, *dq, *dk, *de, *dg, *dr;

    Workspace(const RecurrenceShape& shape, T* at) : K(padded<T>(shape.key)), V(padded<T>(shape.value)) {
        const auto take = [&at](std::int64_t n) {
            T* p = at;
            at += n;
            return p;
        };
        adjoint = take(shape.value * K);
        states = take(segment * shape.value * K);
        for (T** rows : {&q, &k, &e, &decay}) *rows = take(segment * K);
        for (T** row : {&dq, &dk, &de, &dg}) *row = take(K);
        dr = take(V);
    }
    static std::int64_t size(const RecurrenceShape& shape) {
        const std::int64_t k = padded<T>(shape.key);
        return (segment + 1) * shape.value * k + 4 * segment * k + 4 * k + padded<T>(shape.value);
    }
};

// Copies factor * row into the workspace, with zeros beyond the live features. A step of 0 repeats one number.
template <class T>
PALIMPSEST_INLINE void gather_row(std::int64_t live, std::int64_t width, const T* from, std::int64_t step, T factor,
                                  T* __restrict to) {
    for (std::int64_t a = 0; a < live; ++a) to[a] = factor * from[a * step];
    for (std::int64_t a = live; a < width; ++a) to[a] = T(0);
}

// Calls f<P>(first key feature) for blocks of two vectors, and for a last block of one.
template <class F>
PALIMPSEST_INLINE void for_blocks(std::int64_t width, std::int64_t lanes, const F& f) {
    std::int64_t first = 0;
    for (; first + 2 * lanes <= width; first += 2 * lanes) f.template operator()<2>(first);
    if (first < width) f.template operator()<1>(first);
}

template <class T>
PALIMPSEST_INLINE void backward(const RecurrenceShape& shape, const RecurrenceInputs<T>& in, const T* residual, const T* saved,
                                const RecurrenceCotangents<T>& d, const RecurrenceGradients<T>& out, T* scratch) {
    using Vec = typename Wide<T>::type;
    constexpr std::int64_t lanes = Wide<T>::lanes;
    const std::int64_t K = shape.key, V = shape.value, M = shape.micro_steps, gates = shape.channel ? K : 1;
    const std::int64_t key_stride = shape.heads * K, value_stride = shape.heads * V, gate_stride = shape.heads * gates;
    const Workspace<T> w(shape, scratch);

    for (std::int64_t v = 0; v < V; ++v) {
        for (std::int64_t a = 0; a < w.K; ++a)
            w.adjoint[v * w.K + a] = d.final_state != nullptr && a < K ? d.final_state[a * V + v] : T(0);
    }
    for (std::int64_t s = shape.segments() - 1; s >= 0; --s) {
        const std::int64_t begin = s * segment, rows = std::min(segment, shape.rows() - begin);
        for (std::int64_t i = 0; i < rows; ++i) {
            const std::int64_t row = begin + i;
            gather_row(K, w.K, in.k + row * key_stride, 1, T(1), w.k + i * w.K);
            gather_row(K, w.K, in.q + row / M * key_stride, 1, in.scale, w.q + i * w.K);
            if (in.e != nullptr) gather_row(K, w.K, in.e + row * key_stride, 1, T(1), w.e + i * w.K);
            if (in.decay != nullptr)
                gather_row(K, w.K, in.decay + row * gate_stride, shape.channel ? 1 : 0, T(1), w.decay + i * w.K);
        }
        // S~ of every row is its decay times (S~ + k r^T of the row before).
        const T* from = saved + s * K * V;
        for (std::int64_t v = 0; v < V; ++v) {
            for (std::int64_t a = 0; a < w.K; ++a) {
                const T value = a < K ? from[a * V + v] : T(0);
                w.states[v * w.K + a] = in.decay != nullptr ? value * w.decay[a] : value;
            }
        }
        for (std::int64_t i = 1; i < rows; ++i) {
            const T *before = w.states + (i - 1) * V * w.K, *r = residual + (begin + i - 1) * value_stride;
            T* after = w.states + i * V * w.K;
            for (std::int64_t a = 0; a < w.K; a += lanes) {
                Vec k, decay = {};
                load<T>(k, w.k + (i - 1) * w.K + a);
                if (in.decay != nullptr) load<T>(decay, w.decay + i * w.K + a);
                for (std::int64_t v = 0; v < V; ++v) {
                    Vec x;
                    load<T>(x, before + v * w.K + a);
                    x += r[v] * k;
                    if (in.decay != nullptr) x *= decay;
                    store(after + v * w.K + a, x);
                }
            }
        }
        for (std::int64_t i = rows - 1; i >= 0; --i) {
            const std::int64_t row = begin + i, token = row / M;
            const bool last = (row + 1) % M == 0, reads = last && d.o != nullptr;
            const T *before = w.states + i * V * w.K, *r = residual + row * value_stride;
            const T *d_o = reads ? d.o + token * value_stride : nullptr, *k = w.k + i * w.K;
            for (std::int64_t v = 0; v < V; ++v) w.dr[v] = d.residual != nullptr ? d.residual[row * value_stride + v] : T(0);
            for_blocks(w.K, lanes, [&]<int P>(std::int64_t a) PALIMPSEST_INLINE_LAMBDA {
                if (reads)
                    adjoint_write<T, P, true>(V, w.K, before + a, w.adjoint + a, w.q + i * w.K + a, k + a, r, d_o, w.dr, w.dq + a,
                                              w.dk + a);
                else
                    adjoint_write<T, P, false>(V, w.K, before + a, w.adjoint + a, nullptr, k + a, r, nullptr, w.dr, nullptr,
                                               w.dk + a);
            });
            if (in.e != nullptr || in.decay != nullptr) {
                for_blocks(w.K, lanes, [&]<int P>(std::int64_t a) PALIMPSEST_INLINE_LAMBDA {
                    const T *e = w.e + i * w.K + a, *decay = w.decay + i * w.K + a;
                    if (in.decay == nullptr)
                        adjoint_erase<T, P, true, false>(V, w.K, before + a, w.adjoint + a, e, decay, w.dr, w.de + a, w.dg + a);
                    else if (in.e == nullptr)
                        adjoint_erase<T, P, false, true>(V, w.K, before + a, w.adjoint + a, e, decay, w.dr, w.de + a, w.dg + a);
                    else adjoint_erase<T, P, true, true>(V, w.K, before + a, w.adjoint + a, e, decay, w.dr, w.de + a, w.dg + a);
                });
            }
            std::copy(w.dk, w.dk + K, out.k + row * key_stride);
            std::copy(w.dr, w.dr + V, out.u + row * value_stride);
            if (in.e != nullptr) std::copy(w.de, w.de + K, out.e + row * key_stride);
            if (in.decay != nullptr) {
                T* dg = out.log_decay + row * gate_stride;
                if (shape.channel) {
                    std::copy(w.dg, w.dg + K, dg);
                } else {
                    T sum = 0;
                    for (std::int64_t a = 0; a < K; ++a) sum += w.dg[a];
                    *dg = sum;
                }
            }
            if (last) {  // S_t do_t = S~_t do_t + k (r . do)
                T* dq = out.q + token * key_stride;
                T along = 0;
                for (std::int64_t v = 0; reads && v < V; ++v) along += r[v] * d_o[v];
                for (std::int64_t a = 0; a < K; ++a) dq[a] = reads ? in.scale * (w.dq[a] + along * k[a]) : T(0);
            }
        }
    }
    if (out.initial != nullptr) {
        for (std::int64_t a = 0; a < K; ++a) {
            for (std::int64_t v = 0; v < V; ++v) out.initial[a * V + v] = w.adjoint[v * w.K + a];
        }
    }
}

template <class T>
PALIMPSEST_INLINE void inverse_rows(std::int64_t n, const T* __restrict lower, T* __restrict inverse) {
    for (std::int64_t i = 0; i < n; ++i) {
        T* row = inverse + i * n;
        std::fill(row, row + n, T(0));
        row[i] = 1;
        for (std::int64_t m = 0; m < i; ++m) {
            const T factor = lower[i * n + m];
            const T* above = inverse + m * n;
            for (std::int64_t j = 0; j <= m; ++j) row[j] -= factor * above[j];
        }
    }
}

}  // namespace

std::int64_t recurrence_scratch(const RecurrenceShape& shape) {
    // The padding of float (16 lanes) is the wider one and serves double too; a tile of forward has at most 4 vectors of columns.
    return std::max(Workspace<float>::size(shape), shape.key * 4 * Wide<float>::lanes);
}

PALIMPSEST_SIMD void recurrence_forward(const RecurrenceShape& shape, const RecurrenceInputs<float>& in,
                                        const RecurrenceOutputs<float>& out, float* scratch) {
    forward(shape, in, out, scratch);
}
PALIMPSEST_SIMD void recurrence_forward(const RecurrenceShape& shape, const RecurrenceInputs<double>& in,
                                        const RecurrenceOutputs<double>& out, double* scratch) {
    forward(shape, in, out, scratch);
}
PALIMPSEST_SIMD void recurrence_backward(const RecurrenceShape& shape, const RecurrenceInputs<float>& in, const float* residual,
                                         const float* saved, const RecurrenceCotangents<float>& d,
                                         const RecurrenceGradients<float>& out, float* scratch) {
    backward(shape, in, residual, saved, d, out, scratch);
}
PALIMPSEST_SIMD void recurrence_backward(const RecurrenceShape& shape, const RecurrenceInputs<double>& in, const double* residual,
                                         const double* saved, const RecurrenceCotangents<double>& d,
                                         const RecurrenceGradients<double>& out, double* scratch) {
    backward(shape, in, residual, saved, d, out, scratch);
}
PALIMPSEST_SIMD void unit_lower_inverse(std::int64_t n, const float* lower, float* inverse) { inverse_rows(n, lower, inverse); }
PALIMPSEST_SIMD void unit_lower_inverse(std::int64_t n, const double* lower, double* inverse) { inverse_rows(n, lower, inverse); }

}  // namespace palimpsest::ops::cpu
