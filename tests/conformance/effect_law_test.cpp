// Law: an option of a mixer changes its parameters or its output, or says beside what it does not; and a mixer names what it looks
// at of the model and the run.
#include "effect_law.h"

#include "bench.h"
#include "core/error.h"

using namespace palimpsest;
using namespace palimpsest::conformance;

namespace {

// Shapes, initial values and the output in training at a step where directions may have been drawn anew.
std::string outcome(const MixerKind& kind, const void* options, bool rotary = false, bool rescale = false) {
    try {
        ModelSpec model;
        model.width = width;
        model.init = Init::torch_default;
        model.rescale_output = rescale;
        nn::Parameters parameters;
        BuildContext context;
        context.scope.parameters = &parameters;
        context.scope.prefix = "mixer";
        context.scope.model = &model;
        context.scope.residual_branches = 4;
        context.options = options;
        context.width = width;
        context.layers = 1;
        context.longest = longest;
        context.rotary = rotary;
        const std::unique_ptr<Mixer> mixer = kind.build(context);
        parameters.allocate({3}, {1}, at::kCPU);
        StepContext step;
        step.training = true;
        step.step = at::full({1}, 7, at::kLong);
        step.lane_seeds = at::full({1}, 3, at::kLong);
        const at::NoGradGuard no_grad;
        const at::Tensor y = mixer->forward(noise({1, 2, 12, width}, 5, at::kFloat).cpu(), nullptr, step).contiguous();
        std::string text;
        for (const nn::ParameterInfo& info : parameters.table()) text += fmt::format("{} {} ", info.name, info.numel);
        text.append(reinterpret_cast<const char*>(y.const_data_ptr<float>()), static_cast<std::size_t>(y.numel()) * sizeof(float));
        return text;
    } catch (const Error&) {
        return "";
    }
}

}  // namespace

TEST_CASE("an option of a mixer has an effect or says where it has none", "[law]") {
    const Threads one(1);
    for (const std::string& name : mixer_names()) {
        INFO(name);
        const MixerKind& kind = get_mixer(name);
        std::vector<std::shared_ptr<void>> bases;
        for (const Variant& variant : variants())
            if (variant.mixer == name && (variant.options.empty() || variant.options.size() > 1))
                bases.push_back(Unit(variant, {1}, at::kFloat).options);
        CHECK(EffectLaw(kind.schema(), [&](const void* options) { return outcome(kind, options); }).breaches(bases) ==
              std::vector<std::string>{});
    }
}

TEST_CASE("a mixer names what it looks at of the model and the run", "[law]") {
    const Threads one(1);
    for (const std::string& name : mixer_names()) {
        INFO(name);
        const MixerKind& kind = get_mixer(name);
        const std::shared_ptr<void> options = kind.schema().make_default();
        const std::string plain = outcome(kind, options.get());
        CHECK((outcome(kind, options.get(), true) != plain) == kind.schema().looks_at("model.positions"));
        CHECK((outcome(kind, options.get(), false, true) != plain) == kind.schema().looks_at("model.rescale_output"));
        State state;  // a recurrence leaves its memory there
        const Unit unit({name, {}}, {1}, at::kFloat);
        unit.mixer->forward(noise({1, 1, 4, width}, 5, at::kFloat), &state, {});
        CHECK(kind.schema().looks_at("run.backend") == state.has("memory"));
    }
}
