// palimpsest ls [NAME]: lists every run below a folder with its state.
#include "cli/app.h"
#include "cli/find.h"
#include "cli/output.h"
#include "cli/path_option.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "store/answers.h"
#include "store/run_folder.h"
#include "store/run_reader.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>

namespace palimpsest::cli {
namespace {

namespace fs = std::filesystem;

double age_of(const std::string& file) {
    std::error_code error;
    const fs::file_time_type written = fs::last_write_time(file, error);
    if (error) return std::numeric_limits<double>::quiet_NaN();
    return std::chrono::duration<double>(fs::file_time_type::clock::now() - written).count();
}

// Returns the accuracy at the end of the run where there is one, else of the last evaluation so far.
double test_accuracy(const std::string& file, const RunRecord& record) {
    if (const auto found = record.summary.find("test_accuracy"); found != record.summary.end()) return found->second;
    RunParts answers = results_only;
    answers.answers = true;
    const RunRecord evaluated = read_run(file, answers);
    return evaluated.eval_step.empty() ? std::numeric_limits<double>::quiet_NaN()
                                       : accuracy(evaluated, evaluated.eval_step.size() - 1, 1);
}

struct Row {
    std::string folder, state, id, above, human;  // above: the folder around the run's; human: the name without the id
    double accuracy = std::numeric_limits<double>::quiet_NaN(), age = 0;
};

// Orders rows by sweep, then as a person would sort the names; the ids before the names say nothing.
bool before(const Row& a, const Row& b) {
    for (const auto part : {&Row::above, &Row::human, &Row::id}) {
        if (natural_less(a.*part, b.*part)) return true;
        if (natural_less(b.*part, a.*part)) return false;
    }
    return a.folder < b.folder;
}

ExitCode ls(const std::string& name, const std::string& results, bool json) {
    const std::string root = name.empty() ? results : find_place(name, results).folder;
    std::vector<Row> rows;
    std::string problems;
    for (const std::string& folder : find_run_folders(root)) {
        const RunFolder run(folder);
        Row row;
        row.folder = folder;
        const RunState state = run.state();
        row.state = to_string(state);
        row.id = id_in_name(folder);
        row.above = fs::path(folder).parent_path().string();
        row.human = fs::path(folder).filename().string().substr(row.id.size());
        const std::string file = run.file("run.h5");
        row.age = age_of(file);
        const bool there = file_exists(file);
        std::string problem = there && state != RunState::lost ? "" : run.lost_record();
        try {
            if (there && problem.empty()) {
                const RunRecord record = read_run(file, results_only);
                row.id = record.run_id;
                row.accuracy = test_accuracy(file, record);
            }
        } catch (const Error& error) {
            problem = error.what();
        }
        if (!problem.empty()) problems += problem + "\n";
        rows.push_back(std::move(row));
    }
    std::sort(rows.begin(), rows.end(), before);
    Table table({"state", "accuracy", "age", "id", "name"});
    nlohmann::json out = nlohmann::json::array();
    for (const Row& row : rows) {
        const std::string run = name_of(row.folder, results);
        table.add({row.state, std::isfinite(row.accuracy) ? fmt::format("{:.3f}", row.accuracy) : "-", age_text(row.age),
                   row.id.empty() ? "?" : row.id, run});
        out.push_back({{"state", row.state},
                       {"id", row.id},
                       {"name", run},
                       {"folder", row.folder},
                       {"test_accuracy", row.accuracy},
                       {"age_seconds", row.age}});
    }
    if (json) print_json(out);
    else if (table.empty()) fail(ExitCode::usage, "no runs in '{}'", root);
    else print(table.str());
    if (!problems.empty()) throw Error(ExitCode::run_failed, problems.substr(0, problems.size() - 1));
    return ExitCode::ok;
}

}  // namespace

void add_ls(CLI::App& app, Session& session) {
    auto name = std::make_shared<std::string>();
    auto results = std::make_shared<std::string>("results");
    auto json = std::make_shared<bool>(false);
    CLI::App* verb = app.add_subcommand("ls", "list runs with their states");
    add_path(*verb, "NAME", *name,
             "a folder of results or of one sweep, or a sweep's name below the results; by default all results");
    add_path(*verb, "--results", *results, "where to look for a name");
    verb->add_flag("--json", *json, "print JSON");
    verb->callback([=, &session] { session.action = [=] { return ls(*name, *results, *json); }; });
}

}  // namespace palimpsest::cli
