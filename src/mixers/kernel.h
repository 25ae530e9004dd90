// What kernel attention adds to the recurrence: a normaliser, and exponential features that never overflow.
#pragma once

#include "mixers/heads.h"

#include <ATen/ops/cummax.h>

namespace palimpsest {

// Returns o_t = S_t^T q_t / (z_t . q_t + eps), where z is the decayed sum of the keys: a value that is always 1 makes z the last
// column of the memory [.., K, V + 1]. The read scale cancels, except beside eps.
inline at::Tensor normalised_recur(ops::RecurrenceInput input, std::int64_t lanes, State* state, ops::Backend backend, double eps) {
    const at::Tensor& u = input.u;
    const std::int64_t values = u.size(3);
    input.u = at::cat({u, at::ones({1}, u.options()).expand({u.size(0), u.size(1), u.size(2), 1})}, -1);
    const at::Tensor o = recur(input, lanes, state, backend);
    return o.narrow(-1, 0, values) / (o.narrow(-1, values, 1) + eps);
}

// Makes e^q and e^k of the exponents in q and k, without overflow and without looking ahead. A query's own maximum cancels in
// the normalisation. Keys are scaled by the largest entry so far, m_t (kept in the state as "largest"); when m grows, the
// memory is rescaled by e^(m_{t-1} - m_t), which is a decay of the recurrence family. The normalised output does not depend on
// m, so m takes no gradient.
inline void exponential_features(ops::RecurrenceInput& input, std::int64_t lanes, State* state) {
    input.q = (input.q - input.q.detach().amax(-1, true)).exp();
    at::Tensor top = input.k.detach().amax(-1);  // [N, T, H]
    const bool goes_on = state && (*state)["largest"].defined();
    if (goes_on) top = at::cat({(*state)["largest"].flatten(0, 1), top}, 1);
    at::Tensor largest = std::get<0>(at::cummax(top, 1));
    const at::Tensor before = goes_on ? largest.narrow(1, 0, largest.size(1) - 1)
                                      : at::cat({largest.narrow(1, 0, 1), largest.narrow(1, 0, largest.size(1) - 1)}, 1);
    if (goes_on) largest = largest.narrow(1, 1, largest.size(1) - 1);
    input.k = (input.k - largest.unsqueeze(-1)).exp();
    input.log_decay = before - largest;
    if (state) {  // [R, B, 1, H]
        const at::Tensor last = largest.narrow(1, largest.size(1) - 1, 1).clone(at::MemoryFormat::Contiguous);
        (*state)["largest"] = last.unflatten(0, {lanes, last.size(0) / lanes});
    }
}

}  // namespace palimpsest
