// The token-by-token recurrence and its adjoint on raw contiguous arrays: one call is one sequence and one head.
//
// Forward keeps S as [K][V]: q, k, e and the decay are broadcast and the columns of V are independent, so a tile of columns walks
// the whole sequence with its state in the first-level cache. Forward saves the residuals r and, every `segment` rows, the state.
// Backward keeps S and its adjoint as [V][K], which turns the contractions over V for dq, dk, de and dg into broadcasts. From the
// saved state and the saved r the states of a segment follow without any reduction.
#pragma once

#include <cstdint>

namespace palimpsest::ops::cpu {

constexpr std::int64_t segment = 32;  // rows between saved states

struct RecurrenceShape {
    std::int64_t tokens = 0, micro_steps = 1, heads = 0, key = 0, value = 0;
    bool channel = false;  // decay per channel, else per head
    std::int64_t rows() const { return tokens * micro_steps; }
    std::int64_t segments() const { return (rows() + segment - 1) / segment; }
};

// Pointers to the first element of this sequence and head. Rows of q, k and e are heads * key apart, rows of u heads * value, rows
// of decay heads * (channel ? key : 1).
template <class T>
struct RecurrenceInputs {
    const T *q = nullptr, *k = nullptr, *u = nullptr;
    const T* e = nullptr;        // null: no erase
    const T* decay = nullptr;    // exp of the log decay; null: no decay
    const T* initial = nullptr;  // [key][value]; null: zeros
    T scale = 1;
};

template <class T>
struct RecurrenceOutputs {
    T *o = nullptr, *residual = nullptr;  // rows heads * value apart; residual may be null
    T* final_state = nullptr;             // [key][value]
    T* saved = nullptr;                   // [segments][key][value], the state before each segment; null: not saved
};

template <class T>
struct RecurrenceCotangents {
    const T *o = nullptr, *residual = nullptr, *final_state = nullptr;  // a null stands for zeros
};

// All gradients are overwritten. e and log_decay may be null when the input has no such rows.
template <class T>
struct RecurrenceGradients {
    T *q = nullptr, *k = nullptr, *u = nullptr, *e = nullptr, *log_decay = nullptr, *initial = nullptr;
};

// Returns the elements of scratch that a call needs. Alignment to 64 bytes is fastest; the content does not matter.
std::int64_t recurrence_scratch(const RecurrenceShape& shape);

void recurrence_forward(const RecurrenceShape&, const RecurrenceInputs<float>&, const RecurrenceOutputs<float>&, float* scratch);
void recurrence_forward(const RecurrenceShape&, const RecurrenceInputs<double>&, const RecurrenceOutputs<double>&, double* scratch);

// `residual` and `saved` are those that the forward pass saved.
void recurrence_backward(const RecurrenceShape&, const RecurrenceInputs<float>&, const float* residual, const float* saved,
                         const RecurrenceCotangents<float>&, const RecurrenceGradients<float>&, float* scratch);
void recurrence_backward(const RecurrenceShape&, const RecurrenceInputs<double>&, const double* residual, const double* saved,
                         const RecurrenceCotangents<double>&, const RecurrenceGradients<double>&, double* scratch);

// Computes (I + lower)^-1 [n][n] of a strictly lower triangular matrix by forward substitution. Other entries are not read.
void unit_lower_inverse(std::int64_t n, const float* lower, float* inverse);
void unit_lower_inverse(std::int64_t n, const double* lower, double* inverse);

}  // namespace palimpsest::ops::cpu
