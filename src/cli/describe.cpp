// palimpsest describe mixer NAME | task NAME [option=value …] | model | train | data | eval | run | config: prints what the schemas
// say.
#include "cli/app.h"
#include "cli/example.h"
#include "cli/output.h"
#include "core/text.h"
#include "mixers/mixer.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <memory>

namespace palimpsest::cli {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<std::string> kinds = {"mixer", "task", "model", "train", "data", "eval", "run", "config"};

std::string meaning(const AnySchema& schema, const Option& option) {
    const std::string where = schema.where_used(option);
    return where.empty() ? option.meaning : fmt::format("{} (where {})", option.meaning, where);
}

std::string options_table(const AnySchema& schema) {
    Table table({"option", "type", "default", "allowed", "meaning"});
    for (const Option& option : schema.options())
        if (!option.nested) table.add({option.name, option.type, option.default_text, option.allowed, meaning(schema, option)});
    return table.str();
}

Json options_json(const AnySchema& schema) {
    Json list = Json::array();
    for (const Option& option : schema.options()) {
        if (option.nested) continue;
        Json cautions = Json::object();
        for (const auto& [value, text] : option.cautions) cautions[value] = text;
        list.push_back({{"name", option.name},
                        {"type", option.type},
                        {"default", option.default_text},
                        {"allowed", option.allowed},
                        {"meaning", option.meaning},
                        {"used_where", schema.where_used(option)},
                        {"identity", option.identity},
                        {"cautions", cautions}});
    }
    return list;
}

void print_ordered(const Json& json) { print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"); }

std::string indented(const std::string& text) {
    std::string out = "  ";
    for (const char c : text) out += c == '\n' ? "\n  " : std::string(1, c);
    return out;
}

void describe_mixer(const std::string& name, bool json) {
    const MixerKind& kind = get_mixer(name);
    const MixerFacts& facts = kind.facts();
    const char* state = facts.growing_state ? "grows with the sequence" : "of fixed size";
    const char* order =
        facts.needs_positions ? "needs positions (model.positions, or a convolution before it)" : "knows the order by itself";
    if (json) {
        print_ordered({{"kind", "mixer"},
                       {"name", facts.name},
                       {"summary", facts.summary},
                       {"paper", facts.paper},
                       {"recurrence", facts.recurrence},
                       {"growing_state", facts.growing_state},
                       {"needs_positions", facts.needs_positions},
                       {"options", options_json(kind.schema())}});
        return;
    }
    print(fmt::format("{}: {}\n\nrecurrence\n{}\n\nstate   {}\norder   {}\npaper   {}\n\noptions, under mixers.{} in a config\n{}",
                      facts.name, facts.summary, indented(facts.recurrence), state, order, facts.paper, facts.name,
                      options_table(kind.schema())));
}

// Returns "length=32" … as a map, each value with its place.
Value options_map(const std::vector<std::string>& arguments, Diagnostics& errors) {
    auto text = std::make_shared<SourceText>();
    text->name = "<command line>";
    text->text = join(arguments, "\n");
    Value map = Value::map({text, 1, 1});
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const int number = static_cast<int>(i) + 1;
        const std::size_t equals = arguments[i].find('=');
        if (equals == std::string::npos) {
            errors.error({text, number, 1}, fmt::format("'{}' sets nothing; write option=value, such as length=32", arguments[i]));
            continue;
        }
        const int column = static_cast<int>(display_width(arguments[i].substr(0, equals))) + 2;
        map.set(arguments[i].substr(0, equals), parse_argument(text, number, column, arguments[i].substr(equals + 1), errors));
        map.entries.back().source = {text, number, 1};
    }
    return map;
}

void describe_task(const std::string& name, const std::vector<std::string>& arguments, bool json) {
    const Task& task = get_task(name);
    const TaskFacts& facts = task.facts();
    Diagnostics errors;
    const Value map = options_map(arguments, errors);
    const std::shared_ptr<void> options = task.schema().make_default();
    task.schema().read(options.get(), map, "task", errors);
    errors.throw_if_any();
    const WorkedExample example = work_example(*task.compile(options.get()), 1);
    const Shape& shape = example.shape;
    std::vector<std::string> shallow;
    for (const Policy policy : facts.shallow) shallow.emplace_back(to_string(policy));
    if (json) {
        const Json worked = {{"options", to_json(task.schema().write(options.get()))},
                             {"events", example.events},
                             {"tokens", example.tokens},
                             {"positions", example.positions},
                             {"targets", example.targets}};
        print_ordered({{"kind", "task"},
                       {"name", facts.name},
                       {"summary", facts.summary},
                       {"paper", facts.paper},
                       {"ceiling", facts.ceiling},
                       {"shallow", shallow},
                       {"options", options_json(task.schema())},
                       {"example", worked}});
        return;
    }
    print(fmt::format(
        "{}: {}\n\nceiling {}\nshallow {}\npaper   {}\n\noptions, under task in a config (or in one of its segments)\n{}\n",
        facts.name, facts.summary, facts.ceiling, fmt::join(shallow, ", "), facts.paper, options_table(task.schema())));
    print(
        fmt::format("one example: {} positions, {}, {} (k key, v value, . filler; the answer is predicted where it stands, never "
                    "laid out)\n\n{}\n",
                    shape.length, plural(shape.writes, "write"), plural(shape.queries, "question"), token_rows(example, 100)));
    print("its events\n");
    for (const std::string& event : example.events) print("  " + event + "\n");
}

// "config": the keys at the top, which stand in no section.
void describe_section(const std::string& name, bool json) {
    const Option* section = run_schema().find(name);
    const bool top = name == "config";
    PALIMPSEST_ASSERT(top || (section != nullptr && section->nested != nullptr), "no section '{}'", name);
    const AnySchema& schema = top ? run_schema() : *section->nested;
    const std::string meaning = top ? "the keys at the top, in no section" : section->meaning;
    if (json) print_ordered({{"kind", "section"}, {"name", name}, {"meaning", meaning}, {"options", options_json(schema)}});
    else print(fmt::format("{}: {}\n\n{}", name, meaning, options_table(schema)));
}

// Returns the command, without the program's name, that a person most likely meant by `describe WORD …`, or "" where none is near.
std::string meant(const std::string& word) {
    const std::vector<std::string> mixers = mixer_names(), tasks = task_names();
    std::vector<std::string> all = kinds;
    all.insert(all.end(), mixers.begin(), mixers.end());
    all.insert(all.end(), tasks.begin(), tasks.end());
    const std::optional<std::string> near = closest(word, all);
    if (!near) return "";
    if (contains(kinds, *near)) return "describe " + *near + (*near == "mixer" || *near == "task" ? " NAME" : "");
    return fmt::format("describe {} {}", contains(mixers, *near) ? "mixer" : "task", *near);
}

void check_kind(const std::string& kind, const std::vector<std::string>& words) {
    if (!contains(kinds, kind)) {
        const std::string command = meant(kind);
        fail(
            ExitCode::usage, "'{}' is neither mixer, task nor a section ({}){}", kind, join({kinds.begin() + 2, kinds.end()}, ", "),
            command.empty()
                ? "; `palimpsest list` shows mixers and tasks"
                : (contains(mixer_names(), kind) || contains(task_names(), kind) ? "; write `palimpsest " + command + "`"
                                                                                 : "; did you mean `palimpsest " + command + "`?"));
    }
    // A task may be asked for as a mixer, or the other way round.
    const char* other = kind == "mixer" ? "task" : "mixer";
    const bool misplaced = (kind == "mixer" || kind == "task") && !words.empty() &&
                           contains(kind == "mixer" ? task_names() : mixer_names(), words.front());
    if (misplaced)
        fail(ExitCode::usage, "'{}' is a {}; write `palimpsest describe {} {}`", words.front(), other, other, words.front());
}

ExitCode describe(const std::string& kind, const std::vector<std::string>& words, bool json) {
    check_kind(kind, words);
    const bool named = kind == "mixer" || kind == "task";
    if (named && words.empty()) {
        const std::vector<std::string> known = kind == "mixer" ? mixer_names() : task_names();
        fail(ExitCode::usage, "which {}? {}", kind, join(known, ", "));
    }
    if (kind != "task" && words.size() > (named ? 1u : 0u))
        fail(ExitCode::usage, "'{}' is one word too many; only a task takes options here", words.back());
    if (kind == "mixer") describe_mixer(words.front(), json);
    else if (kind == "task") describe_task(words.front(), {words.begin() + 1, words.end()}, json);
    else describe_section(kind, json);
    return ExitCode::ok;
}

}  // namespace

void add_describe(CLI::App& app, Session& session) {
    auto kind = std::make_shared<std::string>();
    auto words = std::make_shared<std::vector<std::string>>();
    auto json = std::make_shared<bool>(false);
    CLI::App* verb =
        app.add_subcommand("describe", "show a mixer's recurrence and options, a task with an example, or a section's options");
    verb->add_option("WHAT", *kind, "mixer, task, a section (model, train, data, eval, run), or config: the keys in none")
        ->required();
    verb->add_option("NAME", *words, "name of the mixer or task; then options of the task, such as length=32");
    verb->add_flag("--json", *json, "print JSON");
    verb->callback([=, &session] { session.action = [=] { return describe(*kind, *words, *json); }; });
}

}  // namespace palimpsest::cli
