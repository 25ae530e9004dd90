// Optimizers: what makes an update of a gradient. The base class holds what all have in common, by lane: the norm of the gradient,
// clipping by it (as torch.nn.utils.clip_grad_norm_), the finite test, and who is updated. An optimizer is one file that gives its
// facts, its arithmetic and its registration. To add one, begin with the ATen form of adamw.cpp.
//
// Nothing here is read back to the host, and every tensor keeps its address: whether a lane is updated is decided on the device. A
// lane whose loss or gradient is not finite, or that is not live, keeps parameters and states bit for bit.
#pragma once

#include "nn/parameters.h"
#include "ops/optimizer.h"
#include "train/lane_values.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace palimpsest::train {

using ops::Cause;

struct OptimizerFacts {
    std::string name;     // as in YAML
    std::string summary;  // one line
    std::string paper;
    std::vector<std::string> states;  // what it keeps of every element, as checkpoints name it: "first_moment"
};

struct OptimizerSetup;

class Optimizer {
public:
    enum class Path {
        automatic,  // raw where there is such a form, else tensor
        raw,        // loops over memory on the CPU, kernels on a GPU
        tensor,     // ATen operators on the flat buffers
    };
    virtual ~Optimizer() = default;

    // One update from the gradients that stand in the parameters' buffer. loss [R]; lr of a lane = its lr * factor.
    void step(const at::Tensor& loss, double factor);

    // All [R], on the parameters' device.
    at::Tensor& live() { return live_; }                       // bool; a lane that is not live is frozen
    at::Tensor& updates() { return updates_; }                 // int64; updates made
    at::Tensor& skipped() { return skipped_; }                 // int64; updates not made because something was not finite
    const at::Tensor& gradient_norm() const { return norm_; }  // double; of the last step, before clipping
    const at::Tensor& cause() const { return cause_; }         // int64; Cause of the last step

    // By name, in the order of the facts: fp32, flat, in the layout of the parameters' buffer, zero before the first update.
    struct State {
        std::string name;
        at::Tensor values;
    };
    const std::vector<State>& states() const { return states_; }
    at::Tensor& state(std::string_view name);
    nn::Parameters& parameters() { return parameters_; }

protected:
    explicit Optimizer(const OptimizerSetup& setup);

    // The arithmetic: updates values and states of the lanes of which updated() is true, and of no other.
    virtual void update(double factor) = 0;

    Path path() const { return path_; }
    at::Device device() const { return parameters_.values().device(); }

    // For raw forms. `f` is called for each piece of each lane, by several threads.
    const std::vector<ops::Piece>& pieces() const { return pieces_; }
    const ops::Piece* pieces_on_device() const { return static_cast<const ops::Piece*>(pieces_on_device_.const_data_ptr()); }
    ops::LaneRecords records();
    void for_pieces(const std::function<void(std::size_t piece, std::int64_t lane)>& f) const;
    // A copy of plain structs on the parameters' device, as bytes.
    template <class T>
    at::Tensor upload(const std::vector<T>& list) const {
        return upload_bytes(list.data(), list.size() * sizeof(T));
    }

    // For ATen forms.
    at::Tensor column(double LaneValues::*member) const;                // [R] double
    const at::Tensor& updated() const { return updated_; }              // [R] bool
    at::Tensor spread(const at::Tensor& by_lane);                       // [R] over the elements of each lane, fp32
    at::Tensor clipped_gradients();                                     // flat
    const at::Tensor& decayed();                                        // flat, fp32: 1 where weight decay applies, else 0
    void assign(at::Tensor& flat, const at::Tensor& of_updated_lanes);  // those of other lanes stay

private:
    at::Tensor upload_bytes(const void* data, std::size_t size) const;
    void build_pieces();
    void build_flat_indices();
    void judge_loops(const at::Tensor& loss);
    void judge_on_device(const at::Tensor& loss);
    void judge_tensors(const at::Tensor& loss);

    nn::Parameters& parameters_;
    std::vector<LaneValues> lanes_;
    ops::UpdateRules rules_;
    bool decay_all_;
    Path path_;
    at::Tensor live_, updated_, updates_, skipped_, norm_, clip_, cause_;
    std::vector<State> states_;
    std::vector<ops::Piece> pieces_;
    at::Tensor pieces_on_device_, sums_;  // of kernels
    at::Tensor lane_of_, decayed_;        // of ATen forms; made when first asked for
};

struct OptimizerSetup {
    const OptimizerFacts& facts;
    nn::Parameters& parameters;
    const std::vector<LaneValues>& lanes;
    const TrainSpec& options;
    Optimizer::Path path;
};

// Makes the optimizer that options.optimizer names. Throws Error(usage) for an unknown name.
std::unique_ptr<Optimizer> make_optimizer(nn::Parameters& parameters, const std::vector<LaneValues>& lanes,
                                          const TrainSpec& options, Optimizer::Path path = Optimizer::Path::automatic);

// The registry. Names are sorted; get throws Error(usage) for an unknown name, listing the known ones.
std::vector<std::string> optimizer_names();
const OptimizerFacts& optimizer_facts(std::string_view name);
using OptimizerBuilder = std::unique_ptr<Optimizer> (*)(const OptimizerSetup& setup);
void register_optimizer(OptimizerFacts facts, OptimizerBuilder build);

// Registers a class O(const OptimizerSetup&):
//     const RegisterOptimizer<AdamW> registered({"adamw", summary, paper, states});
template <class O>
struct RegisterOptimizer {
    explicit RegisterOptimizer(OptimizerFacts facts) {
        register_optimizer(std::move(facts),
                           [](const OptimizerSetup& setup) -> std::unique_ptr<Optimizer> { return std::make_unique<O>(setup); });
    }
};

}  // namespace palimpsest::train
