// Loops of the depthwise causal convolution, on raw contiguous arrays.
#pragma once

#include <cstdint>

namespace palimpsest::ops::cpu {

// A `ConvShape` describes padded [sequences, tokens + width - 1, channels] and taps [width, channels] of one lane.
struct ConvShape {
    std::int64_t tokens = 0, channels = 0, width = 0;
};

// Computes y [tokens, channels] of one sequence. bias is [channels] or null.
void conv_forward(const ConvShape& shape, const float* padded, const float* taps, const float* bias, float* y);
void conv_forward(const ConvShape& shape, const double* padded, const double* taps, const double* bias, double* y);

// Writes dpadded [tokens + width - 1, channels] of one sequence.
void conv_backward_input(const ConvShape& shape, const float* taps, const float* dy, float* dpadded);
void conv_backward_input(const ConvShape& shape, const double* taps, const double* dy, double* dpadded);

// Writes dtaps [width, channels] from all sequences of a lane, for the channels [first, last) only.
void conv_backward_taps(const ConvShape& shape, std::int64_t sequences, std::int64_t first, std::int64_t last, const float* padded,
                        const float* dy, float* dtaps);
void conv_backward_taps(const ConvShape& shape, std::int64_t sequences, std::int64_t first, std::int64_t last, const double* padded,
                        const double* dy, double* dtaps);

}  // namespace palimpsest::ops::cpu
