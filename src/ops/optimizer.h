// What every optimizer asks of a gradient before its own arithmetic: its norm, whether it is finite, and so which lanes are
// updated. Host and GPU both run this.
#pragma once

#include "core/platform.h"

#include <cmath>

namespace palimpsest::ops {

// What was not finite in a step, as a number that fits a metric column: nothing, the loss, or 2 + index of a parameter whose
// gradient was not finite; of several the one declared last, which is nearest to the loss in most models.
struct Cause {
    static constexpr std::int64_t none = 0, loss = 1, first_gradient = 2;
};

// Consecutive elements of one parameter: the unit of the loops and kernels. The bounds of a piece depend on the parameter alone, so
// sums over pieces do not depend on how many lanes or threads there are.
struct Piece {
    std::int64_t parameter;    // index in the table of parameters
    std::int64_t first;        // of lane 0, in the flat buffer
    std::int64_t lane_stride;  // elements from a lane to the next
    std::int64_t count;
    bool decayed;

    PALIMPSEST_HD std::int64_t begin(std::int64_t lane) const { return first + lane * lane_stride; }
};

// What an optimizer keeps of its lanes: pointers to arrays [R].
struct LaneRecords {
    bool *live, *updated;  // takes part at all; is updated in this step
    std::int64_t *updates, *skipped, *cause;
    double *norm, *clip;  // of the gradient before clipping; the factor that clips it
};

struct UpdateRules {
    double clip = 0;    // largest norm; 0: gradients are not clipped
    bool stop = false;  // a lane that is not finite is live no more
};

// An infinity minus itself is NaN. The sum of squares of finite fp32 numbers is finite in double.
PALIMPSEST_HD inline bool is_finite(double x) { return x - x == 0; }

// Decides one lane of a step from the sum of squares of its gradient and the last of its gradients that was not finite.
PALIMPSEST_HD inline void judge_lane(const LaneRecords& lanes, std::int64_t lane, double squares, std::int64_t gradient_cause,
                                     double loss, const UpdateRules& rules) {
    const double norm = std::sqrt(squares), clip = rules.clip / (norm + 1e-6);
    const std::int64_t cause = is_finite(loss) ? gradient_cause : Cause::loss;
    const bool live = lanes.live[lane], updated = live && cause == Cause::none;
    lanes.norm[lane] = norm;
    lanes.clip[lane] = rules.clip > 0 && clip < 1 ? clip : 1;
    lanes.cause[lane] = cause;
    lanes.updated[lane] = updated;
    lanes.updates[lane] += updated ? 1 : 0;
    lanes.skipped[lane] += live && !updated ? 1 : 0;
    if (rules.stop) lanes.live[lane] = updated;
}

}  // namespace palimpsest::ops
