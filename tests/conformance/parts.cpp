#include "parts.h"

#include "core/error.h"

#include <stdexcept>

namespace palimpsest::conformance {

at::Tensor Parts::operator[](const std::string& name) const {
    for (std::size_t i = 0; i < unit.parameters.table().size(); ++i) {
        if (unit.parameters.table()[i].name == "mixer." + name) return unit.parameters.leaf(i)[0].detach();
    }
    throw std::out_of_range(name);
}

at::Tensor Parts::heads(const at::Tensor& x, const std::string& name, std::int64_t count) const {
    return at::matmul(x, (*this)[name + ".weight"]).unflatten(-1, {count, -1});
}

at::Tensor Parts::forward(const at::Tensor& x) { return unit.mixer->forward(x.unsqueeze(0), nullptr, StepContext{})[0].detach(); }

at::Tensor unit_length(const at::Tensor& x) { return x / (x.square().sum(-1, true) + 1e-6).sqrt(); }

at::Tensor rms_normed(const at::Tensor& x, const at::Tensor& weight, double eps) {
    return weight * x / (x.square().mean(-1, true) + eps).sqrt();
}

std::int64_t parameter_count(const std::string& mixer, std::int64_t d,
                             const std::vector<std::pair<std::string, std::string>>& changed) {
    const MixerKind& kind = get_mixer(mixer);
    const auto options = kind.schema().make_default();
    Value map = Value::map();
    for (const auto& [name, value] : changed) map.set(name, Value::scalar(value));
    Diagnostics errors;
    kind.schema().read(options.get(), map, "mixers." + mixer, errors);
    errors.throw_if_any();
    ModelSpec model;
    nn::Parameters parameters;  // declared, never allocated
    BuildContext context;
    context.scope.parameters = &parameters;
    context.scope.model = &model;
    context.options = options.get();
    context.width = d;
    kind.build(context);
    return parameters.count();
}

std::string refusal(const Variant& variant) {
    try {
        Unit(variant, {1}, at::kFloat);
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::usage);
        return error.what();
    }
    return "no error";
}

}  // namespace palimpsest::conformance
