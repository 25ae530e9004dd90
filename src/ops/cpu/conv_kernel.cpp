#include "ops/cpu/conv_kernel.h"

#include "ops/cpu/simd.h"

#include <algorithm>

namespace palimpsest::ops::cpu {

namespace {

template <class T>
PALIMPSEST_INLINE void forward(const ConvShape& s, const T* __restrict padded, const T* __restrict taps, const T* __restrict bias,
                               T* __restrict y) {
    for (std::int64_t t = 0; t < s.tokens; ++t) {
        T* row = y + t * s.channels;
        if (bias != nullptr) std::copy(bias, bias + s.channels, row);
        else std::fill(row, row + s.channels, T(0));
        for (std::int64_t w = 0; w < s.width; ++w) {
            const T *x = padded + (t + w) * s.channels, *k = taps + w * s.channels;
            for (std::int64_t c = 0; c < s.channels; ++c) row[c] += k[c] * x[c];
        }
    }
}

template <class T>
PALIMPSEST_INLINE void backward_input(const ConvShape& s, const T* __restrict taps, const T* __restrict dy, T* __restrict dpadded) {
    for (std::int64_t t = 0; t < s.tokens + s.width - 1; ++t) {
        T* row = dpadded + t * s.channels;
        std::fill(row, row + s.channels, T(0));
        const std::int64_t first = std::max<std::int64_t>(0, t - s.tokens + 1), last = std::min(s.width - 1, t);
        for (std::int64_t w = first; w <= last; ++w) {  // row t of padded is tap w of output t - w
            const T *d = dy + (t - w) * s.channels, *k = taps + w * s.channels;
            for (std::int64_t c = 0; c < s.channels; ++c) row[c] += k[c] * d[c];
        }
    }
}

template <class T>
PALIMPSEST_INLINE void backward_taps(const ConvShape& s, std::int64_t sequences, std::int64_t first, std::int64_t last,
                                     const T* __restrict padded, const T* __restrict dy, T* __restrict dtaps) {
    for (std::int64_t w = 0; w < s.width; ++w) std::fill(dtaps + w * s.channels + first, dtaps + w * s.channels + last, T(0));
    for (std::int64_t n = 0; n < sequences; ++n) {
        for (std::int64_t t = 0; t < s.tokens; ++t) {
            const T* d = dy + (n * s.tokens + t) * s.channels;
            for (std::int64_t w = 0; w < s.width; ++w) {
                const T* x = padded + (n * (s.tokens + s.width - 1) + t + w) * s.channels;
                T* row = dtaps + w * s.channels;
                for (std::int64_t c = first; c < last; ++c) row[c] += d[c] * x[c];
            }
        }
    }
}

}  // namespace

PALIMPSEST_SIMD void conv_forward(const ConvShape& s, const float* padded, const float* taps, const float* bias, float* y) {
    forward(s, padded, taps, bias, y);
}
PALIMPSEST_SIMD void conv_forward(const ConvShape& s, const double* padded, const double* taps, const double* bias, double* y) {
    forward(s, padded, taps, bias, y);
}
PALIMPSEST_SIMD void conv_backward_input(const ConvShape& s, const float* taps, const float* dy, float* dpadded) {
    backward_input(s, taps, dy, dpadded);
}
PALIMPSEST_SIMD void conv_backward_input(const ConvShape& s, const double* taps, const double* dy, double* dpadded) {
    backward_input(s, taps, dy, dpadded);
}
PALIMPSEST_SIMD void conv_backward_taps(const ConvShape& s, std::int64_t sequences, std::int64_t first, std::int64_t last,
                                        const float* padded, const float* dy, float* dtaps) {
    backward_taps(s, sequences, first, last, padded, dy, dtaps);
}
PALIMPSEST_SIMD void conv_backward_taps(const ConvShape& s, std::int64_t sequences, std::int64_t first, std::int64_t last,
                                        const double* padded, const double* dy, double* dtaps) {
    backward_taps(s, sequences, first, last, padded, dy, dtaps);
}

}  // namespace palimpsest::ops::cpu
