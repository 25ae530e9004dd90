// What a config says, as plain structs without YAML nodes or tensors. Every default of the tool stands in this file.
#pragma once

#include "config/schema.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace palimpsest {

// A `SegmentSpec` is one set of task options with its number of examples. `options` points to the task's own struct.
struct SegmentSpec {
    std::shared_ptr<const void> options;
    std::int64_t examples = 1000;  // per evaluation, or per epoch where data.mode is fixed
    Value resolved;                // every option, for the records
    std::string label;             // the options in which this list's segments differ, e.g. "length=128 pairs=8"; never empty
    Source source;
};

// A `TaskSpec` is the task with its segments. Options at the level of `task` are defaults of all segments. An empty valid list
// means the test segments on the valid stream.
struct TaskSpec {
    std::string name;
    std::vector<SegmentSpec> train, valid, test;
};

enum class Mlp { none, identity_with_norm, gelu, swiglu };
enum class Positions { none, learned, rotary };
enum class NormKind { layer, rms };
enum class Init { normal, torch_default, xavier_small };
enum class EmbeddingInit { normal, unit_normal, spherical };

// A `Layer` is one entry of model.layers: a mixer, and the options that belong to this layer alone.
struct Layer {
    static constexpr const char* list_name = "list of layers";
    std::string mixer;
    Value options;  // a map of those that differ from the mixer's other layers; null: none

    Layer() = default;
    Layer(std::string name) : mixer(std::move(name)) {}
    Layer(const char* name) : mixer(name) {}
};
void read(Layer& out, const Value& value, std::string_view path, const Limits&, Diagnostics& errors);
Value write(const Layer& layer);

struct ModelSpec {
    std::int64_t width = 64;
    std::string mixer = "softmax";  // of every layer, unless `layers` names them
    std::int64_t depth = 2;         // number of layers; equals layers.size() when `layers` are given
    std::vector<Layer> layers;      // one mixer a layer, e.g. [base_conv, softmax]
    Mlp mlp = Mlp::none;            // identity_with_norm: adds norm(residual) to the residual (zoology's quirk)
    double mlp_expansion = 4;
    NormKind norm = NormKind::layer;
    double norm_eps = 1e-5;
    Positions positions = Positions::none;  // learned: added to the embedding; rotary: offered to the mixers that take it (softmax)
    bool tied_head = true;
    Init init = Init::normal;
    double init_std = 0.02;      // of Init::normal
    bool rescale_output = true;  // output projections get std / sqrt(residual branches)
    EmbeddingInit embedding_init = EmbeddingInit::normal;
    bool train_embedding = true;
    double embedding_dropout = 0, residual_dropout = 0;

    std::vector<std::string> mixers_by_layer() const;
};

enum class Schedule { constant, cosine };
enum class Cadence { step, epoch };
enum class DecayOn { matrices, all };
enum class NonFinite { stop, skip, warn };

// A `TrainSpec` says how a run trains. Its lane values may differ between runs that train as lanes of one model.
struct TrainSpec {
    std::int64_t steps = 1000;  // not used when epochs > 0
    std::int64_t epochs = 0;
    std::int64_t batch = 64;
    std::string optimizer = "adamw";
    double lr = 1e-3;                   // lane value
    double weight_decay = 0.1;          // lane value
    double beta1 = 0.9, beta2 = 0.999;  // lane values
    double eps = 1e-8;
    double init_scale = 1;  // lane value: multiplies every random initial weight
    DecayOn weight_decay_on = DecayOn::matrices;
    std::int64_t warmup = 0;  // steps of linear warm-up
    Schedule schedule = Schedule::cosine;
    Cadence schedule_by = Cadence::step;  // epoch: lr changes between epochs only
    double lr_final = 0;                  // fraction of lr at the end of the cosine
    double clip = 1;                      // global gradient norm of a lane; 0: off
    double early_stop = 0;                // stop when the valid accuracy exceeds it; 0: never
    NonFinite non_finite = NonFinite::stop;
    std::int64_t eval_every = 0;  // steps; 0: at the end only (and after each epoch where data.mode is fixed)
    std::int64_t eval_batch = 0;  // 0: as train.batch
};

enum class DataMode { fresh, fixed };
enum class DataOrder { shuffled, in_order };
enum class SegmentOrder { interleaved, in_order };

struct DataSpec {
    std::int64_t seed = 0;  // of the valid and test streams: shared by a sweep, so that runs answer the same questions
    DataMode mode = DataMode::fresh;
    DataOrder order = DataOrder::shuffled;  // fixed mode: keyed permutation in every epoch, or in order (zoology)
    // Which segment a step trains on: spread in proportion, or one after the other (zoology).
    SegmentOrder segments = SegmentOrder::interleaved;
    bool check_overlap = true;  // a test example among the training examples is an error
};

enum class AccuracyMean { answers, examples };  // over all answers, or over examples and then over segments (zoology)
enum class SelectBy { valid, test };            // select by test only for the recipes of peers that do so

struct EvalSpec {
    AccuracyMean mean = AccuracyMean::answers;
    SelectBy select_by = SelectBy::valid;
    bool policies = true;  // score the task's shallow policies on the test examples
};

enum class Device { cpu, cuda };
enum class Precision { fp32, tf32, bf16 };
enum class OpsBackend { automatic, reference, chunk, fused };

// A `RuntimeSpec` says where and how a run is computed. Of its keys only the precision and the backend make another run.
struct RuntimeSpec {
    Device device = Device::cpu;
    std::int64_t threads = 0;               // 0: all cores of the machine
    Precision precision = Precision::fp32;  // part of the identity
    OpsBackend backend = OpsBackend::automatic;
    std::int64_t log_every = 50;          // steps between rows of the training log
    double flush_seconds = 2;             // at most this much of the log is lost by a crash
    std::int64_t checkpoint_every = 500;  // steps; 0: only when interrupted
};

struct RunSpec {
    std::string name;       // human part of the folder's name; not part of the identity
    std::int64_t seed = 1;  // lane value
    TaskSpec task;
    ModelSpec model;
    std::map<std::string, std::shared_ptr<const void>> mixers;  // options by mixer, where all its layers have the same
    std::map<std::size_t, std::shared_ptr<const void>> layers;  // options by layer, of the other mixers
    TrainSpec train;
    DataSpec data;
    EvalSpec eval;
    RuntimeSpec run;

    Value resolved;                        // the whole run, every key that counts, without sweep
    std::shared_ptr<const Value> written;  // the config with its places, as it stands for this run; null where no config was read
    std::string id;                        // 12 hex digits: hash of (schema version, identity keys that differ from their defaults)
    std::set<std::string> unused;          // keys that were written, but do not count in this run
    std::vector<std::string> cautions;     // what a person should know of the chosen values

    // Returns the options of layer `index`; nullptr stands for the mixer's defaults.
    std::shared_ptr<const void> options_of(std::size_t index) const;
};

// Returns "configs/mqar.yaml:14:3: error: " and the message. The place is that of the key with which the message begins
// ("run.threads: 100000 on a machine of …"), else of `key`; where the key was not written, that of the next section around it.
// Where no config was read, returns the message alone.
std::string at_its_place(const RunSpec& run, const std::string& key, const std::string& message);

// A `Catalog` holds the names and schemas that live in the floors above. The registries of tasks, mixers and optimizers fill it.
struct Catalog {
    std::vector<std::string> tasks, mixers, optimizers;
    std::function<const AnySchema*(const std::string&name)> task_schema, mixer_schema;  // nullptr: no such name
    // May be empty. Throws Error where a task's options do not fit together; the message gets the place of the option it names.
    std::function<void(const std::string& task, const void* options)> check_task;
    // May be empty. Throws Error where a mixer's options do not fit together, or do not fit the model.
    std::function<void(const std::string& mixer, const void* options, const ModelSpec& model)> check_mixer;
};

// A `PlannedRun` is one run of a sweep: its spec, and the swept keys with values ("train.lr" -> "0.001") in the grid's order.
struct PlannedRun {
    RunSpec spec;
    std::vector<std::pair<std::string, std::string>> varied;
};

struct Experiment {
    std::string name;
    std::string source_yaml;  // the file as it stands
    std::vector<std::string> overrides;
    std::vector<PlannedRun> runs;  // one when there is no sweep block
    bool is_sweep = false;
    std::int64_t lanes = 0;          // sweep.lanes: runs of one shape that train as one model; 0: the planner's choice
    std::vector<std::string> notes;  // e.g. "2 of 12 points are the same run and were merged", cautions
    std::size_t chosen = 0;          // the run that `only` names, else the first
    std::string explain;             // the resolved config of that run with the origin of each value beside it
};

// Loads `path` with its bases (looked up beside the file, then in `config_dirs`), applies `overrides` ("a.b=value", later ones
// win), expands the sweep and validates everything. Throws Error(usage) with all errors. `only` names one run: its number in the
// plan, or the beginning of its id.
Experiment load_experiment(const std::string& path, const std::vector<std::string>& overrides, const Catalog& catalog,
                           const std::vector<std::string>& config_dirs, const std::string& only = "");
// Does the same from a text, for tests and to resume from the resolved_yaml of a run folder.
Experiment parse_experiment(const std::string& name, const std::string& text, const std::vector<std::string>& overrides,
                            const Catalog& catalog, const std::vector<std::string>& config_dirs, const std::string& only = "");

// The schemas of the sections serve `describe` and the reference pages.
const Schema<ModelSpec>& model_schema();
const Schema<TrainSpec>& train_schema();
const Schema<DataSpec>& data_schema();
const Schema<EvalSpec>& eval_schema();
const Schema<RuntimeSpec>& runtime_schema();
const Schema<RunSpec>& run_schema();  // the top level without task, mixers, base and sweep

}  // namespace palimpsest
