#include "ops/product.h"

#include "core/error.h"

#include <ATen/Context.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

#include <optional>

namespace palimpsest::ops {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

namespace {

// `MatrixUnits` allows tf32 while it lives. The setting is the process's, but the pass that computes waits for each product's
// launch, so no other product runs while it holds.
class MatrixUnits {
public:
    MatrixUnits() { at::globalContext().setFloat32MatmulPrecision("high"); }
    ~MatrixUnits() { at::globalContext().setFloat32MatmulPrecision("highest"); }
    MatrixUnits(const MatrixUnits&) = delete;
    MatrixUnits& operator=(const MatrixUnits&) = delete;
};

// Multiplies by lanes. One lane is an ordinary product, because a plain GEMM is faster than a batch of one.
at::Tensor tf32_product(const at::Tensor& a, const at::Tensor& b) {
    std::optional<MatrixUnits> units;
    if (a.is_cuda()) units.emplace();
    return a.size(0) == 1 ? at::mm(a[0], b[0]).unsqueeze(0) : at::bmm(a, b);
}

at::Tensor bf16_product(const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor left = a.to(at::kBFloat16), right = b.to(at::kBFloat16);
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 8
    if (a.is_cuda()) return a.size(0) == 1 ? at::mm(left[0], right[0], at::kFloat).unsqueeze(0) : at::bmm(left, right, at::kFloat);
#endif
    // A bf16 number is a tf32 number as well, so rounding again changes nothing.
    return tf32_product(left.to(a.scalar_type()), right.to(a.scalar_type()));
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b, Precision precision) {
    return precision == Precision::bf16 ? bf16_product(a, b) : tf32_product(a, b);
}

struct RoundedProduct : Function<RoundedProduct> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w, std::int64_t precision) {
        context->save_for_backward({x, w});
        context->saved_data["precision"] = precision;
        return product(x, w, static_cast<Precision>(precision));
    }
    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const variable_list saved = context->get_saved_variables();
        const auto precision = static_cast<Precision>(context->saved_data["precision"].toInt());
        at::Tensor dx, dw;
        if (context->needs_input_grad(0)) dx = product(gradients[0], saved[1].transpose(1, 2), precision);
        if (context->needs_input_grad(1)) dw = product(saved[0].transpose(1, 2), gradients[0], precision);
        return {dx, dw, {}};
    }
};

}  // namespace

at::Tensor rounded_product(const at::Tensor& x, const at::Tensor& w, Precision precision) {
    PALIMPSEST_ASSERT(precision != Precision::fp32, "a product in fp32 is ATen's own");
    return RoundedProduct::apply(x, w, static_cast<std::int64_t>(precision));
}

}  // namespace palimpsest::ops
