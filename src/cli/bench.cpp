// palimpsest bench step|recurrence: times a training step and its parts, or the recurrence in each of its forms.
#include "train/bench.h"

#include "cli/app.h"
#include "cli/output.h"
#include "core/log.h"
#include "core/text.h"
#include "core/version.h"
#include "mixers/mixer.h"
#include "sweep/catalog.h"
#include "sweep/machine.h"
#include "sweep/plan.h"
#include "train/runtime.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <set>

namespace palimpsest::cli {
namespace {

using Json = nlohmann::ordered_json;
using Milliseconds = std::vector<double>;

struct Common {
    std::vector<std::string> shapes;
    std::int64_t threads = 0, repeats = 20, warmup = 5;
    std::string device;
    bool json = false;
};

void add_common(CLI::App& verb, Common& common, const char* shape_form) {
    verb.add_option("--shape", common.shapes, shape_form)->allow_extra_args(false);
    verb.add_option("--threads", common.threads, "0: all cores of the machine")->check(CLI::Range(0, 1024))->capture_default_str();
    verb.add_option("--repeats", common.repeats, "number of measurements, each timed by itself")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    verb.add_option("--warmup", common.warmup, "number of unmeasured repetitions before them")
        ->check(CLI::Range(0, 1'000'000))
        ->capture_default_str();
    verb.add_option("--device", common.device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
    verb.add_flag("--json", common.json, "print JSON");
}

// Reads "64,256" as {64, 256}.
std::vector<std::int64_t> read_shape(const std::string& text, std::size_t least, std::size_t most, const char* form) {
    std::vector<std::int64_t> out;
    const char *at = text.data(), *end = at + text.size();
    bool good = true;
    while (good && at <= end) {
        std::int64_t number = 0;
        const auto [next, error] = std::from_chars(at, end, number);
        good = error == std::errc() && number > 0 && (next == end || *next == ',');
        out.push_back(number);
        at = next + 1;
    }
    if (!good || out.size() < least || out.size() > most)
        fail(ExitCode::usage, "--shape '{}' is no {}: write whole numbers from 1 on, with commas and no blanks between", text,
             form);
    return out;
}

double median(const Milliseconds& samples) { return train::spread_of(samples).median; }

Json spread_json(const Milliseconds& samples) {
    const train::Spread s = train::spread_of(samples);
    return {{"median", s.median}, {"lower", s.lower}, {"upper", s.upper}, {"least", s.least}};
}

std::string quartiles(const Milliseconds& samples) {
    const train::Spread s = train::spread_of(samples);
    return fmt::format("{:.2f} - {:.2f}", s.lower, s.upper);
}

Json machine_json(bool gpu, int threads) {
    Json out = {{"version", build_info().version},
                {"commit", build_info().commit},
                {"dirty", build_info().dirty},
                {"libtorch", libtorch_version()},
                {"processor", cpu_model()},
                {"device", gpu ? "cuda" : "cpu"},
                {"threads", threads}};
    if (gpu) out["gpu"] = join(gpu_models(), ", ");
    return out;
}

std::string machine_text(const Json& machine) {
    std::string where = machine["processor"];
    if (machine.contains("gpu")) where = std::string(machine["gpu"]) + ", " + where;
    return fmt::format("palimpsest {} ({}), LibTorch {}; {}, {}\n\n", std::string(machine["version"]), short_commit(),
                       std::string(machine["libtorch"]), where, plural(machine["threads"].get<std::int64_t>(), "thread"));
}

// ---- step ----

struct StepArguments : Common {
    std::vector<std::string> words, mixers;
    std::int64_t batch = 64, width = 64, layers = 2;
    std::size_t operators = 0;
};

// Returns a config with a recall task of T tokens and Q questions and a model of one mixer in every layer.
std::string own_config(const StepArguments& a, const std::string& mixer, const std::vector<std::int64_t>& shape) {
    const std::int64_t length = shape[0], queries = shape.size() > 2 ? shape[2] : std::max<std::int64_t>(1, length / 16);
    return fmt::format(
        "task: {{name: mqar, vocabulary: {}, length: {}, pairs: {}, train: [{{}}], test: [{{}}]}}\n"
        "model: {{width: {}, depth: {}, mixer: {}, positions: {}}}\n"
        "train: {{batch: {}}}\n",
        shape[1], length, queries, a.width, a.layers, mixer, get_mixer(mixer).facts().needs_positions ? "learned" : "none",
        a.batch);
}

std::vector<PlannedRun> own_runs(const StepArguments& a, const std::vector<std::string>& overrides) {
    const std::vector<std::string> mixers = a.mixers.empty() ? std::vector<std::string>{"softmax", "gated_delta"} : a.mixers;
    const std::vector<std::string> shapes =
        a.shapes.empty() ? std::vector<std::string>{"64,8192", "64,256", "256,256,64"} : a.shapes;
    std::vector<PlannedRun> runs;
    for (const std::string& mixer : mixers) {
        for (const std::string& shape : shapes) {
            const std::string text = own_config(a, mixer, read_shape(shape, 2, 3, "T,V or T,V,Q"));
            for (PlannedRun& run : parse_experiment("bench", text, overrides, registry_catalog(), config_folders()).runs)
                runs.push_back(std::move(run));
        }
    }
    return runs;
}

// Returns a text of what a step's time depends on.
std::string shape_of(const RunSpec& spec) {
    Value key = Value::map();
    for (const char* section : {"task", "model", "mixers", "run"}) key.set(section, *spec.resolved.find(section));
    return fmt::format("{} {}", spec.train.batch, emit_flow(key));
}

std::vector<PlannedRun> runs_of_config(const std::string& path, const std::vector<std::string>& overrides) {
    std::vector<PlannedRun> runs;
    std::set<std::string> known;
    const Experiment experiment = load_config(path, overrides);
    for (const PlannedRun& run : experiment.runs)
        if (known.insert(shape_of(run.spec)).second) runs.push_back(run);
    if (runs.size() < experiment.runs.size())
        log_info("{} of the {} runs differ in the shape of their step; the others are left out", runs.size(),
                 experiment.runs.size());
    return runs;
}

Json step_json(const PlannedRun& run, const train::StepBench& bench) {
    const RunSpec& spec = run.spec;
    Json parts, config;
    for (std::size_t part = 0; part < bench.times.parts.size(); ++part)
        parts[step_part_names[part]] = spread_json(bench.times.parts[part]);
    for (const char* section : {"model", "mixers", "train"}) config[section] = to_json(*spec.resolved.find(section));
    Json operators = Json::array();
    for (const train::OperatorTime& time : bench.times.operators)
        operators.push_back({{"name", time.name}, {"milliseconds", time.milliseconds}, {"calls", time.calls}});
    return {{"run", varied_text(run.varied)},
            {"layers", spec.model.mixers_by_layer()},
            {"length", bench.length},
            {"vocabulary", bench.vocabulary},
            {"scored", bench.scored},
            {"batch", bench.batch},
            {"width", spec.model.width},
            {"parameters", bench.parameters},
            {"milliseconds", spread_json(bench.times.total)},
            {"parts", parts},
            {"samples", bench.times.total},
            {"processor_milliseconds", bench.processor},
            {"tokens_per_second", static_cast<double>(bench.batch * bench.length) / median(bench.times.total) * 1e3},
            {"peak_memory", bench.peak_memory < 0 ? Json() : Json(bench.peak_memory)},
            {"operators", operators},
            {"config", config}};
}

std::vector<std::string> step_row(const RunSpec& spec, const train::StepBench& bench) {
    const std::vector<std::string> layers = spec.model.mixers_by_layer();
    const bool alike = std::set<std::string>(layers.begin(), layers.end()).size() == 1;
    std::vector<std::string> row = {alike ? layers.front() : join(layers, "+")};
    for (const std::int64_t number : {bench.length, bench.vocabulary, bench.scored, bench.batch, bench.parameters})
        row.push_back(std::to_string(number));
    row.push_back(fmt::format("{:.2f}", median(bench.times.total)));
    row.push_back(quartiles(bench.times.total));
    row.push_back(fmt::format("{:.2f}", bench.processor));
    for (const Milliseconds& part : bench.times.parts) row.push_back(fmt::format("{:.2f}", median(part)));
    row.push_back(format_rate(static_cast<double>(bench.batch * bench.length) / median(bench.times.total) * 1e3));
    row.push_back(bench.peak_memory < 0 ? "-" : format_bytes(bench.peak_memory));
    return row;
}

std::string operators_text(const std::vector<std::string>& row, const std::vector<train::OperatorTime>& times) {
    Table table({"ms", "calls", fmt::format("operators of {}, T {}, V {}", row[0], row[1], row[2])});
    for (const train::OperatorTime& time : times)
        table.add({fmt::format("{:.2f}", time.milliseconds), time.calls > 0 ? fmt::format("{:.0f}", time.calls) : "", time.name});
    return "\n" + table.str();
}

ExitCode bench_step(const StepArguments& a, const CLI::App& verb, const Session& session) {
    std::vector<std::string> overrides;
    std::string config;
    for (const std::string& word : a.words) {
        if (word.find('=') != std::string::npos) overrides.push_back(word);
        else if (config.empty()) config = word;
        else fail(ExitCode::usage, "'{}' and '{}' are two configs; give one at a time", config, word);
    }
    for (const char* option : {"--mixer", "--shape", "--batch", "--width", "--layers"}) {
        if (!config.empty() && verb.count(option) > 0)
            fail(ExitCode::usage,
                 "{} is for the bench's own model; '{}' sets it already, and key=value changes it (such as train.batch=32)", option,
                 config);
    }
    if (verb.count("--threads") > 0) overrides.push_back(fmt::format("run.threads={}", a.threads));
    if (!a.device.empty()) overrides.push_back("run.device=" + a.device);
    const std::vector<PlannedRun> runs = config.empty() ? own_runs(a, overrides) : runs_of_config(config, overrides);
    wait_without_spinning(session.command);

    std::vector<std::string> header = {"layers", "T", "V", "scored", "batch", "parameters", "ms", "quartiles", "processor"};
    header.insert(header.end(), std::begin(step_part_names), std::end(step_part_names));
    header.insert(header.end(), {"tokens/s", "peak memory"});
    Table table(header);
    Json steps = Json::array(), machine;
    std::string operators;
    for (const PlannedRun& run : runs) {
        for (std::size_t segment = 0; segment < run.spec.task.train.size(); ++segment) {
            train::StepBench bench = train::bench_steps(run.spec, segment, a.warmup, a.repeats, a.operators > 0);
            std::vector<train::OperatorTime>& times = bench.times.operators;
            times.resize(std::min(times.size(), a.operators));
            machine = machine_json(run.spec.run.device == Device::cuda, bench.threads);
            steps.push_back(step_json(run, bench));
            const std::vector<std::string> row = step_row(run.spec, bench);
            table.add(row);
            if (a.operators > 0) operators += operators_text(row, times);
        }
    }
    if (a.json) print(Json{{"machine", machine}, {"warmup", a.warmup}, {"repeats", a.repeats}, {"steps", steps}}.dump(2) + "\n");
    else
        print(machine_text(machine) + table.str() +
              "\nms: median of whole steps; processor: mean time of all threads together; the parts are medians, so they need not "
              "add up\n" +
              operators);
    return ExitCode::ok;
}

void add_bench_step(CLI::App& bench, Session& session) {
    auto a = std::make_shared<StepArguments>();
    CLI::App* verb = bench.add_subcommand("step", "measure whole training steps: batch, forward, backward, optimizer");
    verb->add_option("CONFIG", a->words,
                     "a config, of which each run is measured (default: the bench's own models), then key=value as for run");
    verb->add_option("--mixer", a->mixers, "mixer of every layer; several with commas (default: softmax,gated_delta)")
        ->delimiter(',')
        ->allow_extra_args(false);
    verb->add_option("--batch", a->batch, "sequences in a step")->check(CLI::PositiveNumber)->capture_default_str();
    verb->add_option("--width", a->width, "width of the model")->check(CLI::PositiveNumber)->capture_default_str();
    verb->add_option("--layers", a->layers, "number of layers of the model")->check(CLI::PositiveNumber)->capture_default_str();
    verb->add_option("--operators", a->operators,
                     "also list this many operators, by processor time of the main thread (of all threads with --threads 1)")
        ->capture_default_str();
    add_common(*verb, *a,
               "T,V or T,V,Q: tokens, vocabulary, questions (T/16); may be repeated (default: 64,8192, 64,256 and 256,256,64)");
    verb->callback([a, verb, &session] { session.action = [a, verb, &session] { return bench_step(*a, *verb, session); }; });
}

// ---- recurrence ----

struct RecurrenceArguments : Common {
    std::vector<std::string> forms, decays;
    bool no_erase = false;
};

at::Tensor uniform(std::vector<std::int64_t> sizes, double low, double high, at::Device device) {
    const at::Tensor x = at::empty(sizes, at::TensorOptions().device(device)).uniform_(low, high);
    return x.set_requires_grad(true);
}

ExitCode bench_recurrence(const RecurrenceArguments& a, const Session& session) {
    const std::vector<std::string> forms = a.forms.empty() ? std::vector<std::string>{"reference", "chunk"} : a.forms;
    const std::vector<std::string> decays = a.decays.empty() ? std::vector<std::string>{"none", "head", "channel"} : a.decays;
    const std::vector<std::string> shapes =
        a.shapes.empty() ? std::vector<std::string>{"64,64,2,32,32", "64,256,2,32,32"} : a.shapes;
    constexpr const char* form = "N,T,H,K,V";
    for (const std::string& shape : shapes) read_shape(shape, 5, 5, form);
    wait_without_spinning(session.command);
    RuntimeSpec spec;
    spec.threads = a.threads;
    spec.device = a.device == "cuda" ? Device::cuda : Device::cpu;
    const train::Runtime runtime = train::apply_runtime(spec);
    const Json machine = machine_json(runtime.device.is_cuda(), runtime.threads);

    Table table({"form", "N", "T", "H", "K", "V", "decay", "erase", "forward", "quartiles", "both", "quartiles"});
    Json rows = Json::array();
    for (const std::string& shape : shapes) {
        const std::vector<std::int64_t> size = read_shape(shape, 5, 5, form);
        const std::int64_t N = size[0], T = size[1], H = size[2], K = size[3], V = size[4];
        for (const std::string& decay : decays) {
            ops::RecurrenceInput in;
            in.scale = 1 / std::sqrt(static_cast<double>(K));
            const double bound = in.scale;  // keeps keys to unit length at most
            in.q = uniform({N, T, H, K}, -bound, bound, runtime.device);
            in.k = uniform({N, T, H, K}, -bound, bound, runtime.device);
            in.u = uniform({N, T, H, V}, -1, 1, runtime.device);
            if (!a.no_erase) in.e = (in.k.detach() * 0.5).set_requires_grad(true);
            if (decay == "head") in.log_decay = uniform({N, T, H}, -0.1, 0, runtime.device);
            if (decay == "channel") in.log_decay = uniform({N, T, H, K}, -0.1, 0, runtime.device);
            const at::Tensor cotangent = uniform({N, T, H, V}, -1, 1, runtime.device).detach();
            for (const std::string& name : forms) {
                const ops::Backend backend = name == "chunk" ? ops::Backend::chunk : ops::Backend::reference;
                const auto wait = [&] { train::synchronize(runtime.device); };
                const Milliseconds forward = train::time_calls([&] { ops::recurrence(in, backend); }, wait, a.warmup, a.repeats);
                const Milliseconds both =
                    train::time_calls([&] { ops::recurrence(in, backend).o.backward(cotangent); }, wait, a.warmup, a.repeats);
                rows.push_back({{"form", name},
                                {"N", N},
                                {"T", T},
                                {"H", H},
                                {"K", K},
                                {"V", V},
                                {"decay", decay},
                                {"erase", !a.no_erase},
                                {"forward", spread_json(forward)},
                                {"forward_backward", spread_json(both)}});
                table.add({name, std::to_string(N), std::to_string(T), std::to_string(H), std::to_string(K), std::to_string(V),
                           decay, a.no_erase ? "no" : "yes", fmt::format("{:.2f}", median(forward)), quartiles(forward),
                           fmt::format("{:.2f}", median(both)), quartiles(both)});
            }
        }
    }
    if (a.json)
        print(Json{{"machine", machine}, {"warmup", a.warmup}, {"repeats", a.repeats}, {"recurrences", rows}}.dump(2) + "\n");
    else print(machine_text(machine) + table.str() + "\nmedians in ms; both: forward and backward\n");
    return ExitCode::ok;
}

void add_bench_recurrence(CLI::App& bench, Session& session) {
    auto a = std::make_shared<RecurrenceArguments>();
    CLI::App* verb = bench.add_subcommand("recurrence", "measure the memory of the recurrent mixers in each of its forms");
    verb->add_option("--form", a->forms, "reference, chunk; several with commas (default: both)")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::IsMember({"reference", "chunk"}));
    verb->add_option("--decay", a->decays, "none, head, channel; several with commas (default: all)")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::IsMember({"none", "head", "channel"}));
    verb->add_flag("--no-erase", a->no_erase, "additive memory: no read before the write");
    add_common(*verb, *a, "N,T,H,K,V: sequences, tokens, heads, features of keys and values; may be repeated");
    verb->callback([a, &session] { session.action = [a, &session] { return bench_recurrence(*a, session); }; });
}

}  // namespace

void add_bench(CLI::App& app, Session& session) {
    CLI::App* verb = app.add_subcommand("bench", "measure a training step or the recurrence");
    verb->require_subcommand(1);
    add_bench_step(*verb, session);
    add_bench_recurrence(*verb, session);
}

}  // namespace palimpsest::cli
