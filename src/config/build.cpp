#include "config/build.h"

#include "config/blame.h"
#include "config/layers.h"
#include "core/error.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

namespace palimpsest {
namespace {

const std::vector<std::string> split_names = {"train", "valid", "test"};

std::string unknown(const char* kind, const std::string& name, const std::vector<std::string>& known) {
    const std::string hint = did_you_mean(name, known);
    return fmt::format("unknown {} '{}'{}", kind, name, hint.empty() ? fmt::format("; known: {}", join(known, ", ")) : hint);
}

// Labels each segment with the options in which the segments of its list differ; no label is empty.
void label(std::vector<SegmentSpec>& segments) {
    for (std::size_t i = 0; i < segments.size(); ++i) {
        std::vector<std::string> words;
        for (const Value::Entry& option : segments[i].resolved.entries) {
            const auto differs = [&](const SegmentSpec& other) {
                const Value* value = other.resolved.find(option.key);  // none: the option does not count there
                return value && !value->same_content(option.value);
            };
            if (option.key != "examples" && std::any_of(segments.begin(), segments.end(), differs))
                words.push_back(option.key + "=" + emit_flow(option.value));
        }
        segments[i].label = !words.empty() ? join(words, " ") : segments.size() == 1 ? "all" : fmt::format("segment {}", i);
    }
}

// Returns what is wrong with a run's name. It names a folder below the results; by default it is the config file's, without ending.
std::string problem_of_name(const std::string& name) {
    if (name.empty()) return "must not be empty";
    if (!is_utf8(name) || has_control_characters(name))
        return fmt::format(
            "is {}, which holds bytes that are no text in UTF-8; write a name of plain characters (without one, the file's name "
            "counts)",
            shell_line({name}));
    const std::filesystem::path path(name);
    const bool inside = std::none_of(path.begin(), path.end(),
                                     [](const auto& part) { return part.empty() || part == "." || part == ".." || part == "/"; });
    if (!inside) return fmt::format("is '{}'; it must be that of a folder below the results, such as recall or study/recall", name);
    if (std::any_of(path.begin(), path.end(), [](const auto& part) { return part.string().size() > 255; }))
        return "is longer than the 255 bytes that a folder's name may have";
    if (std::find(path.begin(), path.end(), "latest") != path.end())
        return "must not hold 'latest', which is the link to the run that started last";
    return "";
}

class Builder {
public:
    Builder(const Value& root, const std::vector<Setting>& settings, const Catalog& catalog, Diagnostics& errors)
        : root_(root), settings_(settings), catalog_(catalog), errors_(errors), effects_(root, settings, run_, errors) {}

    RunSpec build() {
        run_schema().read(&run_, root_, "", errors_, {"task", "mixers", "base", "sweep"});
        if (const std::string problem = problem_of_name(run_.name); !problem.empty())
            errors_.error(place("name"), "'name' " + problem);
        const Value task = read_task();
        const std::size_t before = errors_.size();
        const Value mixers = read_mixers(root_, catalog_, run_, effects_, errors_);
        const bool mixers_are_right = errors_.size() == before;
        if (!run_.model.layers.empty()) fit_depth();
        judge_sections();
        if (mixers_are_right && is_right(model_schema(), "model")) check_mixers();
        check_together();
        resolve(task, mixers);
        return std::move(run_);
    }

private:
    // Returns the best place that is known for a key: its value, or the section that lacks it.
    Source place(std::string_view path) const {
        for (std::string_view p = path; !p.empty(); p = p.substr(0, p.rfind('.') == std::string_view::npos ? 0 : p.rfind('.')))
            if (const Value* value = find_path(root_, p)) return value->source;
        return root_.source;
    }

    const Setting* setting(std::string_view path) const {
        const Setting* last = nullptr;
        for (const Setting& s : settings_)
            if (s.path == path) last = &s;
        return last;
    }
    bool swept(std::string_view path) const {
        return std::any_of(settings_.begin(), settings_.end(), [&](const Setting& s) { return s.swept && is_below(path, s.path); });
    }

    Value read_task() {
        Value resolved = Value::map();
        const Value* task = root_.find("task");
        if (!task || task->kind != Value::Kind::map) {
            errors_.error(place("task"),
                          task && task->kind == Value::Kind::scalar
                              ? fmt::format("'task' expects a map; write task: {{name: {}, …}} (known tasks: {})", task->text,
                                            join(catalog_.tasks, ", "))
                              : fmt::format("no task; write task: {{name: …}}; known tasks: {}", join(catalog_.tasks, ", ")));
            return resolved;
        }
        const Value* name = task->find("name");
        if (!name) {
            errors_.error(task->source, fmt::format("'task' has no name; known tasks: {}", join(catalog_.tasks, ", ")));
            return resolved;
        }
        const std::size_t before = errors_.size();
        fields::read(run_.task.name, *name, "task.name", {}, errors_);
        if (errors_.size() != before) return resolved;
        const AnySchema* schema = catalog_.task_schema(run_.task.name);
        if (!schema) {
            errors_.error(name->source, unknown("task", run_.task.name, catalog_.tasks));
            return resolved;
        }
        const std::shared_ptr<void> defaults = schema->make_default();
        std::vector<std::string> also = split_names;
        also.push_back("name");
        schema->read(defaults.get(), *task, "task", errors_, also);
        const bool good = errors_.size() == before;
        std::vector<SegmentSpec>* lists[] = {&run_.task.train, &run_.task.valid, &run_.task.test};
        for (std::size_t i = 0; i < 3; ++i) read_segments(*lists[i], split_names[i], *task, *schema, defaults.get(), good);
        std::vector<Effects::User> users;
        for (std::size_t i = 0; i < 3; ++i)
            for (std::size_t j = 0; j < lists[i]->size() && !(valid_as_train_ && split_names[i] == "valid"); ++j)
                users.push_back({(*lists[i])[j].options.get(), &task->find(split_names[i])->items[j],
                                 fmt::format("task.{}.{}", split_names[i], j)});
        effects_.judge(*schema, "task", defaults.get(), users, "segment");
        for (const Effects::User& user : users) effects_.caution(*schema, user.path, user.object);
        return resolve_task();
    }

    // Puts options that all segments share at the level of the task, and the others into each segment.
    Value resolve_task() const {
        std::map<std::size_t, Value> segments;
        const std::vector<SegmentSpec>* lists[] = {&run_.task.train, &run_.task.valid, &run_.task.test};
        for (const auto* list : lists)
            for (const SegmentSpec& segment : *list) {
                Value options = segment.resolved;
                std::erase_if(options.entries, [](const Value::Entry& entry) { return entry.key == "examples"; });
                segments[segments.size()] = std::move(options);
            }
        Value resolved = take_shared(segments, false);
        resolved.entries.insert(resolved.entries.begin(), {"name", {}, fields::write(run_.task.name)});
        std::size_t next = 0;
        for (std::size_t i = 0; i < 3; ++i) {
            Value list = Value::list();
            for (const SegmentSpec& segment : *lists[i]) {
                Value own = std::move(segments[next++]);
                own.set("examples", fields::write(segment.examples));
                list.items.push_back(std::move(own));
            }
            resolved.set(split_names[i],
                         valid_as_train_ && split_names[i] == "valid" ? fields::write(std::string("train")) : std::move(list));
        }
        return resolved;
    }

    void read_segments(std::vector<SegmentSpec>& segments, const std::string& split, const Value& task, const AnySchema& schema,
                       const void* defaults, bool task_is_good) {
        const Value* list = task.find(split);
        const std::string path = "task." + split;
        const bool empty = !list || (list->kind == Value::Kind::list && list->items.empty()) || list->kind == Value::Kind::null;
        if (empty) {
            if (split != "valid")
                errors_.error(list ? list->source : task.source,
                              fmt::format("'task' has no {} segments; write {}: [{{length: 64, examples: 1000}}]", split, split));
            return;
        }
        if (split == "valid" && list->kind == Value::Kind::scalar) return read_valid_word(segments, *list);
        if (list->kind != Value::Kind::list) {
            errors_.error(list->source,
                          fmt::format("'{}' expects a list of segments; write [{{length: 64, examples: 1000}}]", path));
            return;
        }
        for (std::size_t i = 0; i < list->items.size(); ++i) {
            const Value& item = list->items[i];
            const std::string section = fmt::format("{}.{}", path, i);
            SegmentSpec segment;
            segment.source = item.source;
            const std::shared_ptr<void> options = schema.copy(defaults);
            const std::size_t before = errors_.size();
            schema.read(options.get(), item, section, errors_, {"examples"});
            if (const Value* examples = item.find("examples"))
                fields::read(segment.examples, *examples, section + ".examples", between(1, 4294967294), errors_);
            schema.settle(options.get());
            if (task_is_good && errors_.size() == before) check_segment(section, item.source, options.get());
            segment.resolved = schema.write(options.get());
            segment.resolved.set("examples", fields::write(segment.examples));
            segment.options = options;
            segments.push_back(std::move(segment));
        }
        label(segments);
    }

    // Fills the segments for `valid: test` (as when nothing is given) and `valid: train` (the options of the training segments).
    void read_valid_word(std::vector<SegmentSpec>& segments, const Value& word) {
        if (word.text == "train") {
            valid_as_train_ = true;
            segments = run_.task.train;
            for (SegmentSpec& segment : segments) {
                segment.examples = SegmentSpec().examples;
                segment.resolved.set("examples", fields::write(segment.examples));
            }
            label(segments);
        } else if (word.text != "test") {
            errors_.error(
                word.source,
                fmt::format("'task.valid' is train, test or a list of segments, got '{}'; train draws from the options of "
                            "the training segments, test from those of the test segments",
                            word.text));
        }
    }

    void check_segment(const std::string& section, const Source& where, const void* options) {
        if (!catalog_.check_task) return;
        try {
            catalog_.check_task(run_.task.name, options);
        } catch (const Error& error) {
            misfit(error.what(), "'" + section + "': ", {section, "task"}, where);
        }
    }

    // Returns whether a section can be read, whatever else is wrong: an unread section would be blamed for its defaults.
    bool is_right(const AnySchema& schema, const std::string& path) const {
        Diagnostics own;
        if (const Value* section = root_.find(path)) schema.read(schema.make_default().get(), *section, path, own);
        return own.empty();
    }

    void check_mixers() {
        if (!catalog_.check_mixer) return;
        for (const auto& [name, options] : run_.mixers) check_mixer_options(name, "mixers." + name, options.get());
        for (const auto& [i, options] : run_.layers)
            check_mixer_options(run_.model.layers[i].mixer, fmt::format("model.layers.{}", i), options.get());
    }

    void check_mixer_options(const std::string& name, const std::string& section, const void* options) {
        try {
            catalog_.check_mixer(name, options, run_.model);
        } catch (const Error& error) {
            misfit(error.what(), "", {section, "mixers." + name, "model"}, place("model.mixer"));
        }
    }

    // Reports a misfit once, even where several segments or layers share it.
    void misfit(const std::string& message, const std::string& prefix, const std::vector<std::string>& sections,
                const Source& otherwise) {
        const Source where = blame(message, sections, root_, settings_, otherwise);
        if (misfits_.insert(where.where() + message).second) errors_.error(where, prefix + message);
    }

    void fit_depth() {
        ModelSpec& model = run_.model;
        const Value* depth = find_path(root_, "model.depth");
        const auto layers = static_cast<std::int64_t>(model.layers.size());
        // The depth of a base gives way; a depth beside the layers must agree with them.
        const bool beside = depth && depth->source.text == place("model.layers").text;
        if (model.depth != layers && (beside || setting("model.depth")) && !swept("model.layers"))
            errors_.error(depth->source,
                          fmt::format("'model.depth' is {}, but 'model.layers' names {}", model.depth, plural(layers, "layer")));
        model.depth = layers;
    }

    // Returns whether a mixer of the model looks at `key`.
    bool read_by_a_mixer(std::string_view key) const {
        const ModelSpec& model = run_.model;
        const std::vector<Layer> layers = model.layers.empty() ? std::vector<Layer>{model.mixer} : model.layers;
        return std::any_of(layers.begin(), layers.end(), [&](const Layer& layer) {
            const AnySchema* schema = catalog_.mixer_schema(layer.mixer);
            return !schema || schema->looks_at(key);
        });
    }

    void judge_sections() {
        for (const Option& section : run_schema().options()) {
            if (!section.nested) continue;
            effects_.judge(*section.nested, section.name, section.member(&run_));
            effects_.caution(*section.nested, section.name, section.member(&run_));
        }
        run_schema().settle(&run_);
        // Some keys count or not by the mixers or by the task.
        const std::vector<std::string> by_mixers = {"model.mixer", "model.layers"};
        ModelSpec& model = run_.model;
        const auto branches = model.depth * (model.mlp == Mlp::none ? 1 : 2);
        const bool writes_out = model.mlp == Mlp::gelu || model.mlp == Mlp::swiglu || read_by_a_mixer("model.rescale_output");
        if (!model.rescale_output && (branches == 1 || !writes_out)) {
            effects_.no_effect(
                "model.rescale_output", {"model.mixer", "model.layers", "model.depth", "model.mlp"},
                branches == 1 ? "a model of one branch rescales by 1" : "no branch of this model has an output projection");
            model.rescale_output = ModelSpec().rescale_output;
        }
        if (model.positions == Positions::rotary && !read_by_a_mixer("model.positions")) {
            effects_.no_effect("model.positions", by_mixers, "no mixer of this model takes rotary positions; set learned or none");
            model.positions = ModelSpec().positions;
        }
        if (run_.run.backend != RuntimeSpec().backend && !read_by_a_mixer("run.backend")) {
            effects_.no_effect("run.backend", by_mixers, "no mixer of this model is a recurrence; leave it out");
            run_.run.backend = RuntimeSpec().backend;
        }
        if (run_.data.segments != DataSpec().segments && run_.task.train.size() == 1) {
            effects_.no_effect("data.segments", {"task.train"}, "there is one train segment only; leave it out");
            run_.data.segments = DataSpec().segments;
        }
        // A config may well say how many examples there would be, but a person who sets the number for this call expects an effect.
        const Setting* examples = setting("task.train.0.examples");
        if (examples && run_.data.mode == DataMode::fresh && run_.task.train.size() == 1 && !swept("data.mode"))
            errors_.error(examples->source,
                          "'task.train.0.examples' has no effect: where data.mode is fresh no example comes twice, and the "
                          "only segment has every step; set data.mode to fixed");
    }

    std::int64_t steps() const {
        const TrainSpec& train = run_.train;
        if (train.epochs == 0) return train.steps;
        double steps = 0;
        for (const SegmentSpec& segment : run_.task.train)
            steps += std::ceil(static_cast<double>(segment.examples) / static_cast<double>(train.batch)) *
                     static_cast<double>(train.epochs);
        return static_cast<std::int64_t>(std::min(steps, 1e15));
    }

    void check_together() {
        const TrainSpec& train = run_.train;
        const DataSpec& data = run_.data;
        const std::vector<std::string>& optimizers = catalog_.optimizers;
        if (std::find(optimizers.begin(), optimizers.end(), train.optimizer) == optimizers.end())
            errors_.error(place("train.optimizer"), unknown("optimizer", train.optimizer, optimizers));
        if (train.epochs > 0 && data.mode != DataMode::fixed)
            errors_.error(place("train.epochs"),
                          "'train.epochs' needs data.mode fixed: fresh data have no epochs; write data: {mode: fixed}");
        if (train.schedule_by == Cadence::epoch && train.epochs == 0)
            errors_.error(place("train.schedule_by"), "'train.schedule_by' epoch needs train.epochs");
        if (train.early_stop > 0 && train.eval_every == 0 && data.mode == DataMode::fresh)
            errors_.error(place("train.early_stop"),
                          "'train.early_stop' needs train.eval_every: nothing is evaluated before the end");
        const auto readable = [&](const char* key) {
            const Value* value = find_path(root_, std::string("train.") + key);
            Diagnostics own;
            if (value) train_schema().find(key)->read(train_schema().make_default().get(), *value, key, own);
            return own.empty();
        };
        const bool length_known = !run_.task.train.empty() && readable("steps") && readable("epochs") && readable("batch");
        if (length_known && train.warmup > 0 && train.warmup >= steps())
            errors_.error(place("train.warmup"),
                          fmt::format("'train.warmup' is {}, but the run has {}: 'train.lr' would not be reached before the "
                                      "end; set at most {}",
                                      train.warmup, plural(steps(), "step"), steps() - 1));
        if (run_.run.precision != Precision::fp32 && run_.run.device == Device::cpu)
            errors_.error(place("run.precision"), "'run.precision' must be fp32 on the cpu; set run.device cuda");
    }

    void resolve(const Value& task, const Value& mixers) {
        run_.resolved = run_schema().write(&run_);
        auto& entries = run_.resolved.entries;  // its keys: name, seed, model, train, …
        entries.insert(entries.begin() + 2, {"task", {}, task});
        entries.insert(entries.begin() + 4, {"mixers", {}, mixers});
    }

    const Value& root_;
    const std::vector<Setting>& settings_;
    const Catalog& catalog_;
    Diagnostics& errors_;
    RunSpec run_;
    std::set<std::string> misfits_;
    Effects effects_;
    bool valid_as_train_ = false;
};

}  // namespace

RunSpec build_run(const Value& root, const std::vector<Setting>& settings, const Catalog& catalog, Diagnostics& errors) {
    return Builder(root, settings, catalog, errors).build();
}

}  // namespace palimpsest
