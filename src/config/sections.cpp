// The schemas of the tool's own sections. Their defaults stand in spec.h.
#include "config/spec.h"

#include <fmt/format.h>

namespace palimpsest {
namespace {

constexpr Limits fraction_below_one = {0, 1, false, true};

}  // namespace

const Schema<ModelSpec>& model_schema() {
    static const Schema<ModelSpec> schema =
        Schema<ModelSpec>()
            .field("width", &ModelSpec::width, between(1, 1 << 20), "width of the residual stream")
            .field("mixer", &ModelSpec::mixer, "sequence mixer of every layer, unless 'layers' names them")
            .used_when("layers", {"[]"})
            .field("depth", &ModelSpec::depth, between(1, 1000), "number of layers; follows from 'layers' when they are given")
            .field("layers", &ModelSpec::layers,
                   "one mixer a layer, such as [base_conv, softmax]; with options that are the layer's own, {mixer: base_conv, "
                   "kernel: 5}")
            .used_unless("layers", {"[]"})
            .choice("mlp", &ModelSpec::mlp,
                    {{"none", Mlp::none},
                     {"identity_with_norm", Mlp::identity_with_norm},
                     {"gelu", Mlp::gelu},
                     {"swiglu", Mlp::swiglu}},
                    "after each mixer; identity_with_norm adds norm(residual) to the residual, as zoology does")
            .field("mlp_expansion", &ModelSpec::mlp_expansion, Limits{0, 1024, true, false},
                   "hidden width of the MLP over the width")
            .used_when("mlp", {"gelu", "swiglu"})
            .choice("norm", &ModelSpec::norm, {{"layer", NormKind::layer}, {"rms", NormKind::rms}},
                    "of the residual stream, before each branch")
            .field("norm_eps", &ModelSpec::norm_eps, above(0), "added to the variance")
            .choice("positions", &ModelSpec::positions,
                    {{"none", Positions::none}, {"learned", Positions::learned}, {"rotary", Positions::rotary}},
                    "learned: added to the embedding; rotary: offered to the mixers that take it")
            .field("tied_head", &ModelSpec::tied_head, "the head's weights are the embedding's")
            .choice("init", &ModelSpec::init,
                    {{"normal", Init::normal}, {"torch_default", Init::torch_default}, {"xavier_small", Init::xavier_small}},
                    "initial weights of the linear maps")
            .field("init_std", &ModelSpec::init_std, above(0), "standard deviation of the normal initial weights")
            .used_when_any({{"init", {"normal"}}, {"embedding_init", {"normal"}}, {"positions", {"learned"}}})
            .field("rescale_output", &ModelSpec::rescale_output, "output projections: standard deviation / sqrt(residual branches)")
            .choice("embedding_init", &ModelSpec::embedding_init,
                    {{"normal", EmbeddingInit::normal},
                     {"unit_normal", EmbeddingInit::unit_normal},
                     {"spherical", EmbeddingInit::spherical}},
                    "normal: as init_std; unit_normal: deviation 1; spherical: unit length")
            .field("train_embedding", &ModelSpec::train_embedding, "false: the embedding stays as it was drawn")
            .field("embedding_dropout", &ModelSpec::embedding_dropout, fraction_below_one, "after the embedding")
            .field("residual_dropout", &ModelSpec::residual_dropout, fraction_below_one, "after each branch");
    return schema;
}

const Schema<TrainSpec>& train_schema() {
    static const Schema<TrainSpec> schema =
        Schema<TrainSpec>()
            .field("steps", &TrainSpec::steps, between(1, 1 << 28), "optimiser steps")
            .used_when("epochs", {"0"})
            .field("epochs", &TrainSpec::epochs, at_least(0), "passes over the examples of data.mode fixed; 0: train.steps counts")
            .field("batch", &TrainSpec::batch, between(1, 1 << 30), "sequences in a step; all of one segment")
            .field("optimizer", &TrainSpec::optimizer, "what makes an update of a gradient, such as adamw")
            .field("lr", &TrainSpec::lr, above(0), "peak learning rate")
            .field("weight_decay", &TrainSpec::weight_decay, at_least(0), "decoupled, times the learning rate")
            .field("beta1", &TrainSpec::beta1, fraction_below_one, "AdamW, decay of the mean")
            .field("beta2", &TrainSpec::beta2, fraction_below_one, "AdamW, decay of the squares")
            .field("eps", &TrainSpec::eps, above(0), "AdamW, added to the root")
            .field("init_scale", &TrainSpec::init_scale, above(0), "multiplies every random initial weight")
            .choice(
                "weight_decay_on", &TrainSpec::weight_decay_on, {{"matrices", DecayOn::matrices}, {"all", DecayOn::all}},
                "matrices: linear maps, convolutions, embeddings and positions; all: norms and biases too. Decay rates, time steps "
                "and skips of a mixer never decay")
            .used_unless("weight_decay", {"0.0"})
            .field("warmup", &TrainSpec::warmup, at_least(0),
                   "steps over which the learning rate rises linearly; less than the run has, or lr would not be reached")
            .choice("schedule", &TrainSpec::schedule, {{"constant", Schedule::constant}, {"cosine", Schedule::cosine}},
                    "after the warm-up")
            .choice("schedule_by", &TrainSpec::schedule_by, {{"step", Cadence::step}, {"epoch", Cadence::epoch}},
                    "epoch: the learning rate changes between epochs only")
            .used_when("schedule", {"cosine"})
            .field("lr_final", &TrainSpec::lr_final, between(0, 1), "fraction of the learning rate at the end of the cosine")
            .used_when("schedule", {"cosine"})
            .field("clip", &TrainSpec::clip, at_least(0), "largest norm of the whole gradient; 0: off")
            .field("early_stop", &TrainSpec::early_stop, between(0, 1), "stop once the selecting accuracy exceeds it; 0: never")
            .choice("non_finite", &TrainSpec::non_finite,
                    {{"stop", NonFinite::stop}, {"skip", NonFinite::skip}, {"warn", NonFinite::warn}},
                    "what a loss that is not finite does")
            .field("eval_every", &TrainSpec::eval_every, at_least(0),
                   "steps between evaluations; 0: at the end, and after each epoch where data.mode is fixed")
            .field("eval_batch", &TrainSpec::eval_batch, between(0, 1 << 30),
                   "sequences at once in an evaluation; 0: as train.batch")
            .not_identity();
    return schema;
}

const Schema<DataSpec>& data_schema() {
    static const Schema<DataSpec> schema =
        Schema<DataSpec>()
            .field("seed", &DataSpec::seed, at_least(0),
                   "of the valid and test examples; shared by a sweep, so that its runs answer the same questions")
            .choice("mode", &DataSpec::mode, {{"fresh", DataMode::fresh}, {"fixed", DataMode::fixed}},
                    "fresh: no example comes twice; fixed: each segment's number of examples, again and again")
            .choice("order", &DataSpec::order, {{"shuffled", DataOrder::shuffled}, {"in_order", DataOrder::in_order}},
                    "of fixed examples: another permutation in each epoch, or always as they were drawn")
            .used_when("mode", {"fixed"})
            .choice(
                "segments", &DataSpec::segments, {{"interleaved", SegmentOrder::interleaved}, {"in_order", SegmentOrder::in_order}},
                "which of several train segments a step trains on: spread in proportion to their examples, or one after the other")
            .field("check_overlap", &DataSpec::check_overlap, "refuse test examples that are among the training examples")
            .not_identity();
    return schema;
}

const Schema<EvalSpec>& eval_schema() {
    static const Schema<EvalSpec> schema =
        Schema<EvalSpec>()
            .choice("mean", &EvalSpec::mean, {{"answers", AccuracyMean::answers}, {"examples", AccuracyMean::examples}},
                    "accuracy over all answers, or over each segment's examples and then over the segments")
            .choice("select_by", &EvalSpec::select_by, {{"valid", SelectBy::valid}, {"test", SelectBy::test}},
                    "which accuracy picks the best evaluation and stops early; test only to repeat what others did")
            .field("policies", &EvalSpec::policies, "score the task's shallow policies on the same examples")
            .not_identity();
    return schema;
}

const Schema<RuntimeSpec>& runtime_schema() {
    static const Schema<RuntimeSpec> schema =
        Schema<RuntimeSpec>()
            .choice("device", &RuntimeSpec::device, {{"cpu", Device::cpu}, {"cuda", Device::cuda}}, "where the run computes")
            .not_identity()
            .field("threads", &RuntimeSpec::threads, at_least(0), "0: all cores of the machine")
            .not_identity()
            .choice("precision", &RuntimeSpec::precision,
                    {{"fp32", Precision::fp32}, {"tf32", Precision::tf32}, {"bf16", Precision::bf16}},
                    "of the operands of the products of layers; sums, results and recurrences are fp32")
            .choice("backend", &RuntimeSpec::backend,
                    {{"auto", OpsBackend::automatic},
                     {"reference", OpsBackend::reference},
                     {"chunk", OpsBackend::chunk},
                     {"fused", OpsBackend::fused}},
                    "of the mixers that are recurrences")
            .field("log_every", &RuntimeSpec::log_every, at_least(1), "steps between rows of the training log")
            .not_identity()
            .field("flush_seconds", &RuntimeSpec::flush_seconds, above(0), "a crash loses at most so much of the log")
            .not_identity()
            .field("checkpoint_every", &RuntimeSpec::checkpoint_every, at_least(0), "steps; 0: only when interrupted")
            .not_identity();
    return schema;
}

const Schema<RunSpec>& run_schema() {
    static const Schema<RunSpec> schema =
        Schema<RunSpec>()
            .field("name", &RunSpec::name, "human part of the folders' names; the file's name when not given")
            .not_identity()
            .field("seed", &RunSpec::seed, at_least(0), "of initial weights, training examples and dropout")
            .group("model", &RunSpec::model, model_schema(), "the network")
            .group("train", &RunSpec::train, train_schema(), "optimisation")
            .group("data", &RunSpec::data, data_schema(), "which examples, in which order")
            .group("eval", &RunSpec::eval, eval_schema(), "how results are scored")
            .group("run", &RunSpec::run, runtime_schema(), "where and how it runs");
    return schema;
}

void read(Layer& out, const Value& value, std::string_view path, const Limits&, Diagnostics& errors) {
    if (value.kind == Value::Kind::scalar) return fields::read(out.mixer, value, path, {}, errors);
    const Value* mixer = value.find("mixer");
    if (!mixer) {
        errors.error(value.source,
                     fmt::format("'{}' expects a mixer, such as delta, or a map such as {{mixer: delta, heads: 4}}", path));
        return;
    }
    fields::read(out.mixer, *mixer, std::string(path) + ".mixer", {}, errors);
    out.options = value;
    std::erase_if(out.options.entries, [](const Value::Entry& entry) { return entry.key == "mixer"; });
}

Value write(const Layer& layer) {
    Value mixer = fields::write(layer.mixer);
    if (layer.options.entries.empty()) return mixer;
    Value map = layer.options;
    map.entries.insert(map.entries.begin(), {"mixer", {}, std::move(mixer)});
    return map;
}

std::vector<std::string> ModelSpec::mixers_by_layer() const {
    if (layers.empty()) return std::vector<std::string>(static_cast<std::size_t>(depth), mixer);
    std::vector<std::string> names;
    for (const Layer& layer : layers) names.push_back(layer.mixer);
    return names;
}

std::shared_ptr<const void> RunSpec::options_of(std::size_t index) const {
    if (const auto own = layers.find(index); own != layers.end()) return own->second;
    const auto shared = mixers.find(model.layers.empty() ? model.mixer : model.layers.at(index).mixer);
    return shared == mixers.end() ? nullptr : shared->second;
}

}  // namespace palimpsest
