// AdamW with decoupled weight decay (Loshchilov and Hutter 2019; the arithmetic of torch.optim.AdamW), a learning rate, weight
// decay and betas per lane, and clipping by the lane's global gradient norm. Nothing here is read back to the host: whether a lane
// was updated is decided on the device.
//
// A lane whose loss or gradient is not finite, or that is not live, keeps parameters and moments bit for bit.
#pragma once

#include "nn/parameters.h"
#include "train/trainer.h"

#include <cstdint>
#include <vector>

namespace palimpsest::train {

// What was not finite in a step, as a number that fits a metric column: nothing, the loss, or 2 + index of a parameter whose
// gradient was not finite; of several the one declared last, which is nearest to the loss in most models.
struct Cause {
    static constexpr std::int64_t none = 0, loss = 1, first_gradient = 2;
};

class AdamW {
public:
    enum class Path {
        automatic,  // raw on the CPU, tensor elsewhere
        raw,        // one fused pass over memory
        tensor,     // ATen operators on the flat buffers
    };
    AdamW(nn::Parameters& parameters, const std::vector<LaneValues>& lanes, const TrainSpec& options, Path path = Path::automatic);

    // One update from the gradients that stand in the parameters' buffer. loss [R]; lr of a lane = its lr * factor.
    void step(const at::Tensor& loss, double factor);

    // All [R], on the parameters' device.
    at::Tensor& live() { return live_; }                       // bool; a lane that is not live is frozen
    at::Tensor& updates() { return updates_; }                 // int64; updates made, the t of the bias correction
    at::Tensor& skipped() { return skipped_; }                 // int64; updates not made because something was not finite
    const at::Tensor& gradient_norm() const { return norm_; }  // double; of the last step, before clipping
    const at::Tensor& cause() const { return cause_; }         // int64; of the last step
    // Flat, in the layout of the parameters' buffer.
    at::Tensor& first_moment() { return first_; }
    at::Tensor& second_moment() { return second_; }

private:
    // A contiguous piece of one lane of one parameter: the unit of the raw loops. Its bounds depend on the parameter alone, so sums
    // over pieces do not depend on how many lanes or threads there are.
    struct Piece {
        std::int64_t parameter, lane, begin, count;
        bool decayed;
    };
    void step_raw(const at::Tensor& loss, double factor);
    void step_tensor(const at::Tensor& loss, double factor);
    void build_pieces();
    void build_flat_indices();

    nn::Parameters& parameters_;
    std::vector<LaneValues> lanes_;
    double eps_, clip_;
    bool decay_all_, stop_;
    Path path_;
    at::Tensor live_, updates_, skipped_, norm_, cause_, first_, second_;
    std::vector<Piece> pieces_;                                         // raw
    at::Tensor lane_of_, decayed_, lr_, weight_decay_, beta1_, beta2_;  // tensor
};

}  // namespace palimpsest::train
