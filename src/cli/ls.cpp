// palimpsest ls [RESULTS]: every run below a folder, with its state.
#include "cli/app.h"
#include "cli/output.h"
#include "cli/path_option.h"
#include "core/error.h"
#include "core/text.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

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

// Of the end where there is one, else of the last evaluation so far.
double test_accuracy(const RunRecord& record) {
    if (const auto found = record.summary.find("test_accuracy"); found != record.summary.end()) return found->second;
    return record.eval_step.empty() ? std::numeric_limits<double>::quiet_NaN() : accuracy(record, record.eval_step.size() - 1, 1);
}

ExitCode ls(const std::string& root, bool json) {
    Table table({"state", "id", "name", "accuracy", "age"});
    nlohmann::json out = nlohmann::json::array();
    std::string problems;
    for (const std::string& folder : run_folders(root)) {
        const RunFolder run(folder);
        const std::string state = to_string(run.state()), name = fs::path(folder).lexically_relative(root).string();
        const double age = age_of(run.file("run.h5"));
        std::string id = "?";
        double value = std::numeric_limits<double>::quiet_NaN();
        try {
            const RunRecord record = read_run(run.file("run.h5"));
            id = record.run_id;
            value = test_accuracy(record);
        } catch (const Error& error) {
            problems += std::string(error.what()) + "\n";
        }
        table.add({state, id, name, std::isfinite(value) ? fmt::format("{:.3f}", value) : "-", age_text(age)});
        out.push_back({{"state", state}, {"id", id}, {"folder", folder}, {"test_accuracy", value}, {"age_seconds", age}});
    }
    if (json) print_json(out);
    else if (table.empty()) fail(ExitCode::usage, "no runs in '{}'", root);
    else print(table.str());
    if (!problems.empty()) throw Error(ExitCode::run_failed, problems.substr(0, problems.size() - 1));
    return ExitCode::ok;
}

}  // namespace

void add_ls(CLI::App& app, Session& session) {
    auto root = std::make_shared<std::string>("results");
    auto json = std::make_shared<bool>(false);
    CLI::App* verb = app.add_subcommand("ls", "list runs with their states");
    add_path(*verb, "RESULTS", *root, "a folder of results, or of one sweep");
    verb->add_flag("--json", *json, "as JSON");
    verb->callback([=, &session] { session.action = [=] { return ls(*root, *json); }; });
}

}  // namespace palimpsest::cli
