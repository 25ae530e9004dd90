// palimpsest show RUN: prints one run in full, with the end of its log when it did not finish.
#include "cli/app.h"
#include "cli/find.h"
#include "cli/output.h"
#include "cli/path_option.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "store/answers.h"
#include "store/compare.h"
#include "sweep/plan.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

namespace palimpsest::cli {
namespace {

constexpr std::size_t log_lines = 20;

std::vector<std::string> last_lines(const std::string& path) {
    if (!file_exists(path)) return {};
    const std::string text = read_file(path);
    std::vector<std::string> lines;
    std::size_t begin = 0;
    while (begin < text.size()) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        lines.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    if (lines.size() > log_lines) lines.erase(lines.begin(), lines.end() - log_lines);
    return lines;
}

class Accuracies {
public:
    explicit Accuracies(const RunRecord& record) : record_(record) {}

    bool empty() const { return record_.eval_step.empty() || record_.slices.empty(); }

    // Returns a table of the test questions of the last evaluation, grouped by what `name_of` returns for their slice.
    std::string table(const std::string& title,
                      const std::function<std::pair<std::int64_t, std::string>(const Slice&)>& name_of) const {
        const auto group_of = [&](const Slice& slice) { return slice.split == 1 ? std::optional(name_of(slice)) : std::nullopt; };
        const bool stale = may_be_stale(record_);
        std::vector<std::string> header = {title, "answers", "accuracy"};
        if (stale) header.push_back("stale");
        if (!record_.policy_answers.empty()) header.insert(header.end(), {"best policy", "(which)"});
        Table table(header);
        for (const auto& [key, counts] : tally(record_.slices, answers_at(record_, record_.eval_step.size() - 1), group_of)) {
            const auto share_text = [&, &own = counts](std::size_t answer_class) {
                return fmt::format("{:.3f}", own.all() > 0 ? own.share(answer_class) : 0);
            };
            std::vector<std::string> row = {key.second, std::to_string(counts.all()), share_text(0)};
            if (stale) row.push_back(share_text(1));
            if (!record_.policy_answers.empty()) {
                const auto here = [&, &name = key](const Slice& slice) { return group_of(slice) == name; };
                const PolicyShare best =
                    sum(best_policies(record_.slices, record_.answer_classes.size(), record_.policy_answers, here));
                std::vector<std::string> which;
                for (const std::size_t policy : best.policies) which.push_back(record_.policy_names[policy]);
                row.push_back(best.all > 0 ? fmt::format("{:.3f}", best.share()) : "-");
                row.push_back(join(which, ", "));
            }
            table.add(std::move(row));
        }
        return table.str(stdout_width());
    }

private:
    const RunRecord& record_;
};

nlohmann::json slices_json(const RunRecord& record) {
    nlohmann::json out = nlohmann::json::array();
    if (record.eval_step.empty()) return out;
    const std::size_t classes = record.answer_classes.size(),
                      first = (record.eval_step.size() - 1) * record.slices.size() * classes;
    for (std::size_t s = 0; s < record.slices.size(); ++s) {
        const Slice& slice = record.slices[s];
        nlohmann::json answers;
        for (std::size_t c = 0; c < classes; ++c) answers[record.answer_classes[c]] = record.answers[first + s * classes + c];
        out.push_back({{"split", slice.split == 0 ? "valid" : "test"},
                       {"segment", slice.segment},
                       {"overwrites", slice.overwrites},
                       {"distance_from", slice.distance_from},
                       {"distance_to", slice.distance_to},
                       {"label", slice.label},
                       {"answers", answers}});
    }
    return out;
}

ExitCode show(const std::string& word, const std::string& results, bool json) {
    const RunFolder folder(find_run(word, results));
    const RunState state = folder.state();
    const std::optional<RunFailure> failure = folder.failure();
    const bool ended_well = state == RunState::finished;
    const std::vector<std::string> log = ended_well ? std::vector<std::string>{} : last_lines(folder.file("run.log"));
    RunRecord record;
    std::string problem;
    try {
        if (file_exists(folder.file("run.h5"))) record = read_run(folder.file("run.h5"));
    } catch (const Error& error) {
        problem = error.what();  // the rest is shown all the same
    }
    const std::string lost = folder.lost_record();
    if (problem.empty()) problem = lost;
    if (record.run_id.empty()) record.run_id = id_in_name(folder.path());
    if (json) {
        print_json({{"id", record.run_id},
                    {"folder", folder.path()},
                    {"state", to_string(state)},
                    {"message", failure ? failure->message : ""},
                    {"sweep_id", record.sweep_id},
                    {"config", to_json(record.config)},
                    {"provenance", to_json(record.provenance)},
                    {"summary", record.summary},
                    {"summary_attributes", to_json(record.summary_attributes)},
                    {"slices", slices_json(record)},
                    {"log", log}});
        if (!problem.empty()) throw Error(ExitCode::run_failed, problem);
        return ExitCode::ok;
    }
    const auto config = [&](const std::string& key) {
        for (const auto& [name, value] : record.config)
            if (name == key) return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
        return std::string("?");
    };
    const Attributes::value_type stopped_early("stopped", std::string("early_stop"));
    const bool early_stop = std::find(record.summary_attributes.begin(), record.summary_attributes.end(), stopped_early) !=
                            record.summary_attributes.end();
    const std::string early = early_stop ? ", stopped early: train.early_stop was exceeded" : "";
    std::string text =
        fmt::format("run       {}\nstate     {}{}\nfolder    {}\n", record.run_id.empty() ? "?" : record.run_id,
                    to_string(state) + early, state == RunState::running ? ": " + folder.holder() : "", folder.path());
    if (failure)
        text +=
            fmt::format("why       {}{}\n", failure->message, failure->step >= 0 ? fmt::format(" (step {})", failure->step) : "");
    if (!lost.empty())
        text += fmt::format("record    lost: {}\n          trains again from its first step with: {}\n", lost,
                            resume_command(folder.path()));
    if (!record.config.empty()) {
        const std::string layers = config("model.layers"),
                          mixers = layers == "[]" || layers == "?" ? config("model.mixer") : layers;
        text += fmt::format("task      {}\nvalid     drawn from {}\nmixers    {}\nseed      {}\n", config("task.name"),
                            valid_source(config("task.valid")), mixers, config("seed"));
    }
    if (!record.step.empty()) text += fmt::format("last row  step {}\n", record.step.back());
    print(text);
    if (!record.summary.empty()) {
        Table table({"summary", "value"});
        const auto counts = [](const std::string& name) { return name.ends_with("parameters") || name.ends_with("bytes"); };
        for (const auto& [name, value] : record.summary)
            table.add({name, counts(name) && value >= 0 ? fmt::format("{:.0f}", value) : value_text(value)});
        print("\n" + table.str());
    }
    if (const Accuracies accuracies(record); !accuracies.empty()) {
        print(fmt::format("\ntest questions at step {}\n\n", record.eval_step.back()));
        print(accuracies.table("segment", [](const Slice& s) { return std::pair(s.segment, segment_label(s)); }) + "\n");
        print(accuracies.table("overwrites", [](const Slice& s) { return std::pair(s.overwrites, std::to_string(s.overwrites)); }) +
              "\n");
        print(accuracies.table("distance", [](const Slice& s) {
            return std::pair(s.distance_to, fmt::format("{}..{}", s.distance_from, s.distance_to));
        }));
    }
    if (!log.empty()) print(fmt::format("\nend of {}\n{}\n", folder.file("run.log"), join(log, "\n")));
    if (!problem.empty()) throw Error(ExitCode::run_failed, problem);
    return ExitCode::ok;
}

}  // namespace

void add_show(CLI::App& app, Session& session) {
    auto run = std::make_shared<std::string>();
    auto results = std::make_shared<std::string>("results");
    auto json = std::make_shared<bool>(false);
    CLI::App* verb =
        app.add_subcommand("show", "one run: summary, accuracy by segment, overwrites and distance, and the log's end");
    verb->add_option("RUN", *run, "folder of a run, its name below the results, or the beginning of its id")->required();
    add_path(*verb, "--results", *results, "where to look for a name");
    verb->add_flag("--json", *json, "print JSON");
    verb->callback([=, &session] { session.action = [=] { return show(*run, *results, *json); }; });
}

}  // namespace palimpsest::cli
