#include "model/model.h"

#include "core/error.h"
#include "ops/layers.h"

namespace palimpsest {
namespace {

// A `Block` is one pre-norm block: x + mixer(norm(x)), then x + mlp(norm(x)). Dropping, adding and normalising in this order is
// what peers write as "dropout, add to the residual, norm" with the addition moved to the start of the next block.
struct Block {
    nn::Norm mixer_norm, mlp_norm;
    std::unique_ptr<Mixer> mixer;
    nn::FeedForward mlp;
};

ops::Backend backend_of(OpsBackend backend) {
    switch (backend) {
        case OpsBackend::automatic: return ops::Backend::automatic;
        case OpsBackend::reference: return ops::Backend::reference;
        case OpsBackend::chunk: return ops::Backend::chunk;
        case OpsBackend::fused: return ops::Backend::fused;
    }
    PALIMPSEST_ASSERT(false, "backend {}", static_cast<int>(backend));
}

nn::InitRule embedding_rule(const ModelSpec& model) {
    switch (model.embedding_init) {
        case EmbeddingInit::normal: return nn::InitRule::normal(model.init_std);
        case EmbeddingInit::unit_normal: return nn::InitRule::normal(1);
        case EmbeddingInit::spherical: return nn::InitRule::spherical();
    }
    PALIMPSEST_ASSERT(false, "embedding init {}", static_cast<int>(model.embedding_init));
}

// Gathers rows of a table [R, N, d] by index [R, ...] into [R, ..., d]: lane r's indices are moved by r N into the table of all
// lanes. The gradient of at::embedding is summed in a fixed order, on the CPU and on CUDA; that of advanced indexing is not.
at::Tensor rows_of(const at::Tensor& table, const at::Tensor& index) {
    const std::int64_t lanes = table.size(0), rows = table.size(1), width = table.size(2);
    if (lanes == 1) return at::embedding(table.view({rows, width}), index);
    std::vector<std::int64_t> shape(static_cast<std::size_t>(index.dim()), 1);
    shape.front() = lanes;
    const at::Tensor first = at::arange(lanes, index.options()).mul_(rows).view(shape);
    return at::embedding(table.view({lanes * rows, width}), index + first);
}

// On some processors MKL adds up a product of fewer rows in another order (seen on Zen 5). The head computes this many at least,
// or the loss of a question would depend on what else is in its batch.
constexpr std::int64_t fewest_rows = 4;

}  // namespace

struct Model::Impl {
    ModelSpec spec;
    ModelShape shape;
    Precision precision = Precision::fp32;
    nn::Parameters parameters;
    nn::Parameter embedding, positions, head;
    std::vector<Block> blocks;
    nn::Norm final_norm;

    // The sites of dropout are 0 for the embedding, then two a block. They are part of the masks' key, so the numbers never change.
    static std::int64_t mixer_site(std::size_t block) { return 1 + 2 * static_cast<std::int64_t>(block); }
    static std::int64_t mlp_site(std::size_t block) { return 2 + 2 * static_cast<std::int64_t>(block); }

    at::Tensor dropped(const at::Tensor& x, double p, std::int64_t site, const StepContext& context) const {
        if (p == 0 || !context.training) return x;
        PALIMPSEST_ASSERT(context.step.defined() && context.lane_seeds.defined(), "dropout needs the step and the lane seeds");
        return ops::dropout(x, p, context.lane_seeds, context.step, site);
    }
};

Model::Model(const RunSpec& spec, const ModelShape& shape, const std::vector<LaneInit>& lanes, at::Device device,
             at::ScalarType dtype)
    : impl_(std::make_unique<Impl>()) {
    Impl& m = *impl_;
    m.spec = spec.model;
    m.shape = shape;
    m.precision = spec.run.precision;
    const ModelSpec& model = m.spec;
    const std::vector<std::string> mixers = model.mixers_by_layer();
    PALIMPSEST_ASSERT(shape.vocabulary > 0 && shape.longest > 0, "vocabulary {}, longest {}", shape.vocabulary, shape.longest);

    nn::Scope scope;
    scope.parameters = &m.parameters;
    scope.model = &m.spec;
    scope.precision = m.precision;
    // identity_with_norm counts as a branch, because zoology rescales by two a layer.
    const std::int64_t branches_per_block = model.mlp == Mlp::none ? 1 : 2;
    scope.residual_branches = branches_per_block * static_cast<std::int64_t>(mixers.size());

    m.embedding =
        scope.declare("embedding", {shape.vocabulary, model.width}, embedding_rule(model), nn::Decay::yes, model.train_embedding);
    if (model.positions == Positions::learned) {
        m.positions =
            scope.declare("positions", {shape.longest, model.width}, nn::InitRule::normal(model.init_std), nn::Decay::yes);
    }
    for (std::size_t i = 0; i < mixers.size(); ++i) {
        const nn::Scope block_scope = scope.sub("layers").sub(std::to_string(i));
        const MixerKind& kind = get_mixer(mixers[i]);
        std::shared_ptr<const void> options = spec.options_of(i);
        if (!options) options = kind.schema().make_default();
        BuildContext build;
        build.scope = block_scope.sub("mixer");
        build.options = options.get();
        build.width = model.width;
        build.layer = static_cast<std::int64_t>(i);
        build.layers = static_cast<std::int64_t>(mixers.size());
        build.longest = shape.longest;
        build.rotary = model.positions == Positions::rotary;
        build.on_gpu = spec.run.device == Device::cuda;
        build.backend = backend_of(spec.run.backend);

        Block block;
        block.mixer_norm = nn::Norm(block_scope, "mixer_norm", model.width, model.norm, model.norm_eps);
        block.mixer = kind.build(build);
        if (model.mlp != Mlp::none) block.mlp_norm = nn::Norm(block_scope, "mlp_norm", model.width, model.norm, model.norm_eps);
        if (model.mlp == Mlp::gelu || model.mlp == Mlp::swiglu) {
            block.mlp = nn::FeedForward(block_scope.sub("mlp"), model.width, model.mlp, model.mlp_expansion);
        }
        m.blocks.push_back(std::move(block));
    }
    m.final_norm = nn::Norm(scope, "final_norm", model.width, model.norm, model.norm_eps);
    // The head is rows of the vocabulary, like the embedding that a model may use as its head.
    if (!model.tied_head) {
        m.head = scope.declare("head", {shape.vocabulary, model.width}, nn::linear_rule(scope, model.width, shape.vocabulary),
                               nn::Decay::yes);
    }

    std::vector<std::uint64_t> seeds;
    std::vector<double> scales;
    for (const LaneInit& lane : lanes) {
        seeds.push_back(lane.seed);
        scales.push_back(lane.scale);
    }
    m.parameters.allocate(seeds, scales, device, dtype);
}

Model::~Model() = default;

at::Tensor Model::hidden(const at::Tensor& tokens, std::vector<State>* states, const StepContext& outer) {
    Impl& m = *impl_;
    PALIMPSEST_ASSERT(tokens.dim() == 3 && tokens.size(0) == m.parameters.lanes(),
                      "tokens have {} axes, {} lanes; the model has {} lanes", tokens.dim(), tokens.size(0), m.parameters.lanes());
    if (states && states->empty()) states->resize(m.blocks.size());
    PALIMPSEST_ASSERT(!states || states->size() == m.blocks.size(), "{} states for {} layers", states->size(), m.blocks.size());
    std::map<std::string, at::Tensor> shared;
    StepContext context = outer;
    if (!context.shared) context.shared = &shared;

    at::Tensor x = rows_of(*m.embedding, tokens);
    if (m.positions) {
        const std::int64_t length = tokens.size(2);
        PALIMPSEST_ASSERT(context.position + length <= m.shape.longest, "positions {} to {} of at most {}", context.position,
                          context.position + length, m.shape.longest);
        x = x + (*m.positions).narrow(1, context.position, length).unsqueeze(1);
    }
    x = m.dropped(x, m.spec.embedding_dropout, 0, context);
    const double p = m.spec.residual_dropout;
    for (std::size_t i = 0; i < m.blocks.size(); ++i) {
        Block& block = m.blocks[i];
        State* state = states ? &(*states)[i] : nullptr;
        x = x + m.dropped(block.mixer->forward(block.mixer_norm(x), state, context), p, Impl::mixer_site(i), context);
        if (m.spec.mlp == Mlp::none) continue;
        at::Tensor h = block.mlp_norm(x);
        if (m.spec.mlp != Mlp::identity_with_norm) h = block.mlp(h);
        x = x + m.dropped(h, p, Impl::mlp_site(i), context);
    }
    return m.final_norm(x);
}

at::Tensor Model::logits_at(const at::Tensor& hidden, const at::Tensor& positions) {
    Impl& m = *impl_;
    const std::int64_t lanes = hidden.size(0), batch = hidden.size(1), length = hidden.size(2), width = hidden.size(3);
    PALIMPSEST_ASSERT(positions.dim() == 3 && positions.size(0) == lanes && positions.size(1) == batch,
                      "positions {} x {} for hidden states {} x {}", positions.size(0), positions.size(1), lanes, batch);
    const at::Tensor first = at::arange(batch, positions.options()).mul_(length).view({1, batch, 1});
    at::Tensor index = (positions + first).view({lanes, -1});
    const std::int64_t count = index.size(1), missing = fewest_rows - count;
    if (missing > 0 && count > 0) index = at::cat({index, index.narrow(1, 0, 1).expand({lanes, missing})}, 1);
    const at::Tensor scored = rows_of(hidden.reshape({lanes, batch * length, width}), index);
    const at::Tensor& rows = m.spec.tied_head ? *m.embedding : *m.head;
    return nn::lane_product(scored, rows.transpose(1, 2), {}, m.precision).narrow(1, 0, count).contiguous();
}

nn::Parameters& Model::parameters() { return impl_->parameters; }

std::int64_t Model::layers() const { return static_cast<std::int64_t>(impl_->blocks.size()); }

std::int64_t Model::state_bytes(std::int64_t length) {
    const at::NoGradGuard no_grad;
    const nn::Parameters& parameters = impl_->parameters;
    const at::Tensor tokens = at::zeros({parameters.lanes(), 1, length}, impl_->parameters.values().options().dtype(at::kLong));
    std::vector<State> states;
    hidden(tokens, &states, StepContext{});
    std::int64_t bytes = 0;
    for (const State& state : states) bytes += state.bytes();
    return bytes;
}

ParameterCount count_parameters(const RunSpec& spec, const ModelShape& shape) {
    Model model(spec, shape, {LaneInit{}}, at::kMeta);
    return {model.parameters().count(), model.parameters().fixed_count()};
}

std::int64_t measure_state(const RunSpec& spec, const ModelShape& shape) {
    RunSpec plain = spec;
    // Every form keeps the same state. The reference form is named, because `auto` would log its choice.
    if (plain.run.backend == OpsBackend::automatic) plain.run.backend = OpsBackend::reference;
    Model model(plain, shape, {LaneInit{}}, at::kCPU);
    // A state keeps its size or grows by the same number of bytes with every token.
    const std::int64_t first = model.state_bytes(1), second = shape.longest > 1 ? model.state_bytes(2) : first;
    return first + (shape.longest - 1) * (second - first);
}

}  // namespace palimpsest
