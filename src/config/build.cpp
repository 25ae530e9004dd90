#include "config/build.h"

#include "config/blame.h"
#include "core/error.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace palimpsest {
namespace {

const std::vector<std::string> split_names = {"train", "valid", "test"};

std::string unknown(const std::string& kind, const std::string& name, const std::vector<std::string>& known,
                    const char* where = "") {
    const std::string hint = did_you_mean(name, known);
    return fmt::format("unknown {} '{}'{}{}", kind, name, where,
                       hint.empty() ? fmt::format("; known: {}", join(known, ", ")) : hint);
}

// Options in which the segments of one list differ; never empty.
void label(std::vector<SegmentSpec>& segments) {
    for (std::size_t i = 0; i < segments.size(); ++i) {
        std::vector<std::string> words;
        for (const Value::Entry& option : segments[i].resolved.entries) {
            const auto differs = [&](const SegmentSpec& other) {
                return !other.resolved.find(option.key)->same_content(option.value);
            };
            if (option.key != "examples" && std::any_of(segments.begin(), segments.end(), differs))
                words.push_back(option.key + "=" + emit_flow(option.value));
        }
        segments[i].label = !words.empty() ? join(words, " ") : segments.size() == 1 ? "all" : fmt::format("segment {}", i);
    }
}

// The name is that of a folder below the results. Where none is given it is the file's, without its ending.
std::string problem_of_name(const std::string& name) {
    if (name.empty()) return "must not be empty";
    if (!is_utf8(name) || has_control_characters(name))
        return fmt::format("is {}, which holds bytes that are no text in UTF-8; write a name of plain characters (without one, the file's name counts)",
                           shell_line({name}));
    const std::filesystem::path path(name);
    const bool inside = std::none_of(path.begin(), path.end(), [](const auto& part) { return part.empty() || part == "." || part == ".." || part == "/"; });
    if (!inside) return fmt::format("is '{}'; it must be that of a folder below the results, such as recall or study/recall", name);
    if (std::any_of(path.begin(), path.end(), [](const auto& part) { return part.string().size() > 255; }))
        return "is longer than the 255 bytes that a folder's name may have";
    if (name == "latest") return "must not be 'latest', which is the link to the run that started last";
    return "";
}

class Builder {
public:
    Builder(const Value& root, const std::vector<Setting>& settings, const Catalog& catalog, Diagnostics& errors)
        : root_(root), settings_(settings), catalog_(catalog), errors_(errors) {}

    RunSpec build() {
        run_schema().read(&run_, root_, "", errors_, {"task", "mixers", "base", "sweep"});
        if (const std::string problem = problem_of_name(run_.name); !problem.empty()) errors_.error(place("name"), "'name' " + problem);
        const Value task = read_task();
        const std::size_t before = errors_.size();
        const Value mixers = read_mixers();
        if (errors_.size() == before && is_right(model_schema(), "model")) check_mixers();
        check_together();
        resolve(task, mixers);
        return std::move(run_);
    }

private:
    // The best place that is known for a key: its value, or the section that lacks it.
    Source place(std::string_view path) const {
        for (std::string_view p = path; !p.empty(); p = p.substr(0, p.rfind('.') == std::string_view::npos ? 0 : p.rfind('.')))
            if (const Value* value = find_path(root_, p)) return value->source;
        return root_.source;
    }
    bool given(std::string_view path) const { return find_path(root_, path) != nullptr; }

    const Setting* setting(std::string_view path) const {
        const Setting* last = nullptr;
        for (const Setting& s : settings_)
            if (s.path == path) last = &s;
        return last;
    }
    bool swept(std::string_view path) const {
        return std::any_of(settings_.begin(), settings_.end(), [&](const Setting& s) { return s.swept && is_below(path, s.path); });
    }
    // A key set by hand that something else overrules is an error, unless the sweep varies what overrules it.
    void no_effect(std::string_view path, std::string_view overruled_by, const std::string& message) {
        const Setting* set = setting(path);
        if (set && !swept(overruled_by)) errors_.error(set->source, fmt::format("'{}' has no effect: {}", path, message));
    }

    Value read_task() {
        Value resolved = Value::map();
        const Value* task = root_.find("task");
        if (!task || task->kind != Value::Kind::map) {
            errors_.error(place("task"),
                          fmt::format("no task; write task: {{name: …}}; known tasks: {}", join(catalog_.tasks, ", ")));
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
        resolved = schema->write(defaults.get());
        resolved.entries.insert(resolved.entries.begin(), {"name", {}, fields::write(run_.task.name)});
        std::vector<SegmentSpec>* lists[] = {&run_.task.train, &run_.task.valid, &run_.task.test};
        for (std::size_t i = 0; i < 3; ++i) {
            read_segments(*lists[i], split_names[i], *task, *schema, defaults.get(), good);
            Value list = Value::list();
            for (const SegmentSpec& segment : *lists[i]) list.items.push_back(without_task_level(segment.resolved, resolved));
            resolved.set(split_names[i], std::move(list));
        }
        check_task_settings(*task, *schema);
        return resolved;
    }

    // Options of a segment that are those of the task stand there only.
    static Value without_task_level(const Value& segment, const Value& task) {
        Value own = Value::map();
        for (const Value::Entry& option : segment.entries) {
            const Value* shared = task.find(option.key);
            if (!shared || !shared->same_content(option.value)) own.set(option.key, option.value);
        }
        return own;
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
                fields::read(segment.examples, *examples, section + ".examples", at_least(1), errors_);
            if (task_is_good && errors_.size() == before) check_segment(section, item.source, options.get());
            segment.resolved = schema.write(options.get());
            segment.resolved.set("examples", fields::write(segment.examples));
            segment.options = options;
            segments.push_back(std::move(segment));
        }
        label(segments);
    }

    void check_segment(const std::string& section, const Source& where, const void* options) {
        if (!catalog_.check_task) return;
        try {
            catalog_.check_task(run_.task.name, options);
        } catch (const Error& error) {
            misfit(error.what(), "'" + section + "': ", {section, "task"}, where);
        }
    }

    // Whether a section can be read, whatever else is wrong: what was not read would be blamed with the values of defaults.
    bool is_right(const AnySchema& schema, const std::string& path) const {
        Diagnostics own;
        if (const Value* section = root_.find(path)) schema.read(schema.make_default().get(), *section, path, own);
        return own.empty();
    }

    void check_mixers() {
        if (!catalog_.check_mixer) return;
        for (const auto& [name, options] : run_.mixers) check_mixer_options(name, "mixers." + name, options.get());
    }

    void check_mixer_options(const std::string& name, const std::string& section, const void* options) {
        try {
            catalog_.check_mixer(name, options, run_.model);
        } catch (const Error& error) {
            misfit(error.what(), "", {section, "mixers." + name, "model"}, place("model.mixer"));
        }
    }

    // Said once where segments or layers share what is wrong.
    void misfit(const std::string& message, const std::string& prefix, const std::vector<std::string>& sections, const Source& otherwise) {
        const Source where = blame(message, sections, root_, settings_, otherwise);
        if (misfits_.insert(where.where() + message).second) errors_.error(where, prefix + message);
    }

    void check_task_settings(const Value& task, const AnySchema& schema) {
        for (const Option& option : schema.options()) {
            bool everywhere = true;
            for (const std::string& split : split_names)
                if (const Value* list = task.find(split))
                    for (const Value& item : list->items) everywhere = everywhere && item.find(option.name);
            if (everywhere)
                no_effect("task." + option.name, "task.test",
                          fmt::format("every segment has its own '{}'; set task.train.0.{}, task.test.0.{}, …", option.name,
                                      option.name, option.name));
        }
    }

    void check_mixer(const Value* value, const std::string& name) {
        if (!catalog_.mixer_schema(name))
            errors_.error(value ? value->source : place("model"), unknown("mixer", name, catalog_.mixers));
    }

    // Options are read for every mixer that is named, used or not; the run keeps those of the mixers that it uses.
    Value read_mixers() {
        ModelSpec& model = run_.model;
        const Value* layers = find_path(root_, "model.layers");
        if (given("model.mixer") || model.layers.empty()) check_mixer(find_path(root_, "model.mixer"), model.mixer);
        for (std::size_t i = 0; i < model.layers.size(); ++i) check_mixer(&layers->items[i], model.layers[i]);
        if (!model.layers.empty()) fit_depth();

        std::map<std::string, std::shared_ptr<const void>> options;
        const Value* section = root_.find("mixers");
        if (section && section->kind != Value::Kind::map && section->kind != Value::Kind::null)
            errors_.error(section->source, "'mixers' expects a map from mixers to their options, such as {delta: {heads: 2}}");
        static const Value none = Value::map();
        for (const Value::Entry& entry : (section ? *section : none).entries) {
            const AnySchema* schema = catalog_.mixer_schema(entry.key);
            if (!schema) {
                errors_.error(entry.source, unknown("mixer", entry.key, catalog_.mixers, " in 'mixers'"));
                continue;
            }
            const std::shared_ptr<void> object = schema->make_default();
            schema->read(object.get(), entry.value, "mixers." + entry.key, errors_);
            options[entry.key] = object;
        }
        Value resolved = Value::map();
        std::set<std::string> used(model.layers.begin(), model.layers.end());
        if (used.empty()) used.insert(model.mixer);
        for (const std::string& name : used) {
            const AnySchema* schema = catalog_.mixer_schema(name);
            if (!schema) continue;
            run_.mixers[name] = options.count(name) ? options[name] : schema->make_default();
            resolved.set(name, schema->write(run_.mixers[name].get()));
        }
        return resolved;
    }

    void fit_depth() {
        ModelSpec& model = run_.model;
        no_effect("model.mixer", "model.layers", "'model.layers' names the mixer of each layer");
        const Value* depth = find_path(root_, "model.depth");
        const auto layers = static_cast<std::int64_t>(model.layers.size());
        // A base's depth gives way; a depth beside the layers must agree with them.
        const bool beside = depth && depth->source.text == place("model.layers").text;
        if (model.depth != layers && (beside || setting("model.depth")) && !swept("model.layers"))
            errors_.error(depth->source,
                          fmt::format("'model.depth' is {}, but 'model.layers' names {}", model.depth, plural(layers, "layer")));
        model.depth = layers;
    }

    void check_together() {
        const TrainSpec& train = run_.train;
        const DataSpec& data = run_.data;
        if (train.epochs > 0 && data.mode != DataMode::fixed)
            errors_.error(place("train.epochs"),
                          "'train.epochs' needs data.mode fixed: fresh data have no epochs; write data: {mode: fixed}");
        if (train.epochs > 0)
            no_effect("train.steps", "train.epochs",
                      fmt::format("the run lasts {}; set train.epochs, or train.epochs=0 too", plural(train.epochs, "epoch")));
        if (train.schedule_by == Cadence::epoch && train.epochs == 0)
            errors_.error(place("train.schedule_by"), "'train.schedule_by' epoch needs train.epochs");
        if (data.order == DataOrder::in_order && data.mode == DataMode::fresh)
            errors_.error(place("data.order"), "'data.order' in_order needs data.mode fixed: fresh data have no order");
        if (train.early_stop > 0 && train.eval_every == 0 && data.mode == DataMode::fresh)
            errors_.error(place("train.early_stop"),
                          "'train.early_stop' needs train.eval_every: nothing is evaluated before the end");
        if (run_.run.precision != Precision::fp32 && run_.run.device == Device::cpu)
            errors_.error(place("run.precision"), "'run.precision' must be fp32 on the cpu; set run.device cuda");
    }

    void resolve(const Value& task, const Value& mixers) {
        run_.resolved = run_schema().write(&run_);
        auto& entries = run_.resolved.entries;  // name, seed, model, train, …
        entries.insert(entries.begin() + 2, {"task", {}, task});
        entries.insert(entries.begin() + 4, {"mixers", {}, mixers});
    }

    const Value& root_;
    const std::vector<Setting>& settings_;
    const Catalog& catalog_;
    Diagnostics& errors_;
    RunSpec run_;
    std::set<std::string> misfits_;
};

}  // namespace

RunSpec build_run(const Value& root, const std::vector<Setting>& settings, const Catalog& catalog, Diagnostics& errors) {
    return Builder(root, settings, catalog, errors).build();
}

}  // namespace palimpsest
