// Precision rounds the operands of products of layers, and nothing else. On the CPU only bf16 can differ from fp32; with
// PALIMPSEST_TEST_DEVICE=cuda the matrix units of the GPU are asked.
#include "bench.h"
#include "ops/product.h"
#include "ops/recurrence.h"

using namespace palimpsest;
using namespace palimpsest::conformance;

namespace {

at::Tensor noise(std::vector<std::int64_t> shape, double key) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return at::arange(count, at::kDouble).mul(0.7123).add(key).sin().view(shape).to(at::kFloat).to(test_device());
}

// |a - b| / |b| in fp64.
double relative_error(const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
    return ((x - y).norm() / y.norm()).item<double>();
}

at::Tensor delta_outputs() {
    ops::RecurrenceInput input;
    input.q = noise({4, 128, 2, 32}, 1);
    input.k = noise({4, 128, 2, 32}, 2);
    input.k = input.k / input.k.norm(2, -1, true);
    input.u = noise({4, 128, 2, 32}, 3);
    input.e = input.k;
    return ops::recurrence(input, ops::Backend::chunk).o;
}

}  // namespace

TEST_CASE("a rounded product sums in fp32 and does not round its result") {
    const at::Tensor x = noise({1, 192, 256}, 1).requires_grad_(), w = noise({1, 256, 160}, 2).requires_grad_(),
                     dy = noise({1, 192, 160}, 3);
    for (const Precision precision : {Precision::tf32, Precision::bf16}) {
        const bool bf16 = precision == Precision::bf16;
        INFO((bf16 ? "bf16" : "tf32"));
        const auto rounded = [&](const at::Tensor& t) {
            return (bf16 ? t.detach().to(at::kBFloat16) : t.detach()).to(at::kDouble);
        };
        x.mutable_grad() = at::Tensor();
        w.mutable_grad() = at::Tensor();
        const at::Tensor y = ops::rounded_product(x, w, precision);
        (y * dy).sum().backward();
        CHECK(y.scalar_type() == at::kFloat);
        // TF32 keeps 11 bits of an operand, so its products are off by about 3e-4 where a GPU makes them, a few times that where a
        // sum cancels; those of operands that are bf16 numbers are exact, and their sums in fp32 are off by about 1e-7. A result
        // rounded to bf16 would be off by 2e-3.
        const double limit = bf16 || !test_device().is_cuda() ? 2e-6 : 3e-3;
        CHECK(relative_error(y, at::matmul(rounded(x), rounded(w))) < limit);
        CHECK(relative_error(x.grad(), at::matmul(rounded(dy), rounded(w).transpose(1, 2))) < limit);
        CHECK(relative_error(w.grad(), at::matmul(rounded(x).transpose(1, 2), rounded(dy))) < limit);
        if (bf16) CHECK(relative_error(y, at::matmul(x.detach().to(at::kDouble), w.detach().to(at::kDouble))) > 5e-4);
        if (!bf16 && test_device().is_cuda()) CHECK(relative_error(y, at::matmul(rounded(x), rounded(w))) > 1e-5);
    }
}

TEST_CASE("a recurrence computes in fp32 whatever the precision of the products around it") {
    const at::Tensor before = delta_outputs();
    for (const Precision precision : {Precision::tf32, Precision::bf16}) {
        ops::rounded_product(noise({1, 64, 64}, 1), noise({1, 64, 64}, 2), precision);
        CHECK(at::equal(delta_outputs(), before));
    }
    const at::Tensor a = noise({256, 256}, 4), b = noise({256, 256}, 5);
    CHECK(relative_error(at::matmul(a, b), at::matmul(a.to(at::kDouble), b.to(at::kDouble))) < 2e-6);
}
