// palimpsest export SWEEP|RUN…: writes tidy tables for other tools, to stdout or into a file.
#include "store/export.h"

#include "cli/app.h"
#include "cli/output.h"
#include "cli/path_option.h"
#include "cli/select.h"
#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/text.h"
#include "sweep/plan.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <map>
#include <memory>
#include <set>

namespace palimpsest::cli {
namespace {

struct Arguments {
    SelectArguments select;
    std::vector<std::string> keys;
    std::string what = "summary", format, file;
    bool force = false;
};

const std::map<std::string, ExportTable> tables = {{"summary", ExportTable::summary},
                                                   {"evals", ExportTable::evals},
                                                   {"slices", ExportTable::slices},
                                                   {"train", ExportTable::train}};

// Returns the keys that identify a run: its sweep where there are several, the keys in which the runs differ, the seed.
std::vector<std::string> default_keys(const Selection& selection) {
    std::vector<std::string> keys = selection.keys;
    const auto lacks = [&](const char* key) { return !contains(keys, key); };
    if (lacks("sweep") && !follows(selection.runs, "sweep", {})) keys.insert(keys.begin(), "sweep");
    const std::vector<std::string> known = config_keys(selection.runs);
    if (lacks("seed") && contains(known, "seed")) keys.push_back("seed");
    return keys;
}

void check_keys(const std::vector<std::string>& keys, const std::vector<CollectedRun>& runs, ExportTable table) {
    std::vector<std::string> known = config_keys(runs);
    if (table != ExportTable::summary)  // summary values are columns of that table already
        for (std::string& name : summary_names(runs)) known.push_back(std::move(name));
    check_known("config key", keys, known);
    if (std::set<std::string>(keys.begin(), keys.end()).size() < keys.size())
        fail(ExitCode::usage, "--keys names a key twice: {}", join(keys, ","));
}

// Returns the format that was asked for, or else that of the file's ending.
ExportFormat format_of(const Arguments& arguments) {
    if (!arguments.format.empty()) return arguments.format == "json" ? ExportFormat::json : ExportFormat::csv;
    const std::string ending = arguments.file == "-" ? "" : std::filesystem::path(arguments.file).extension().string();
    if (ending == ".json") return ExportFormat::json;
    if (!ending.empty() && ending != ".csv")
        fail(ExitCode::usage,
             "'{}': this program writes csv and json, not '{}'; name the file so, or say --format csv or --format json",
             arguments.file, ending.substr(1));
    return ExportFormat::csv;
}

void tell_missing(const std::vector<const CollectedRun*>& missing, std::size_t all, const std::string& what) {
    if (missing.empty()) return;
    std::vector<std::string> names;
    for (const CollectedRun* run : missing) {
        const std::string& id = run->run.run_id;  // empty where a folder without a manifest holds an unreadable file
        names.push_back(fmt::format("{} ({})", id.empty() ? run->run.folder : short_id(id), to_string(run->state)));
    }
    log_info("note: {} of {} have no {} yet: {}", missing.size(), plural(static_cast<std::int64_t>(all), "run"), what,
             join_some(names, 5));
}

ExitCode export_all(Arguments arguments) {
    const bool to_file = !arguments.file.empty() && arguments.file != "-";
    const ExportFormat format = format_of(arguments);
    if (arguments.force && !to_file) fail(ExitCode::usage, "--force replaces a file; name it with -o FILE");
    if (to_file && !arguments.force && file_exists(arguments.file))
        fail(ExitCode::usage, "'{}' is there already; --force replaces it", arguments.file);
    const ExportTable table = tables.at(arguments.what);
    Selection selection = select_runs(arguments.select, results_only);
    count_once(selection, arguments.keys, "--keys");
    if (arguments.keys.empty()) arguments.keys = default_keys(selection);
    check_keys(arguments.keys, selection.runs, table);
    const auto read = [&](const CollectedRun& run) {
        return run.present ? read_run(run.run.folder + "/run.h5", parts_of(table)) : RunRecord();
    };
    std::vector<const CollectedRun*> missing;
    if (to_file) {
        AtomicFile file(arguments.file);
        missing =
            export_runs(selection.runs, arguments.keys, table, format, read, [&](std::string_view text) { file.write(text); });
        if (arguments.force) file.commit();
        else if (!file.commit_if_absent()) fail(ExitCode::usage, "'{}' is there already; --force replaces it", arguments.file);
    } else {
        missing = export_runs(selection.runs, arguments.keys, table, format, read, print);
    }
    const std::string rows = table == ExportTable::summary ? "summary"
                             : table == ExportTable::train ? "row of the training log"
                                                           : "evaluation";
    tell_missing(missing, selection.runs.size(), rows);
    return ExitCode::ok;
}

}  // namespace

void add_export(CLI::App& app, Session& session) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* verb = app.add_subcommand("export", "export tables of runs for other tools, as csv or json");
    add_select(*verb, arguments->select);
    verb->add_option("--what", arguments->what,
                     "summary: a row a run; evals: a row a run, evaluation and segment; slices: by overwrites and distance too; "
                     "train: the log")
        ->check(CLI::IsMember({"summary", "evals", "slices", "train"}))
        ->capture_default_str();
    verb->add_option("--format", arguments->format, "csv or json; by default as FILE ends, else csv")
        ->check(CLI::IsMember({"csv", "json"}));
    verb->add_option("--keys", arguments->keys,
                     "config keys as columns, separated by commas; by default those that differ, and the seed")
        ->delimiter(',')
        ->allow_extra_args(false);
    add_path(*verb, "-o,--output", arguments->file, "write into this file instead of stdout");
    verb->add_flag("--force", arguments->force, "replace the file when it is there");
    verb->callback([arguments, &session] { session.action = [arguments] { return export_all(*arguments); }; });
}

}  // namespace palimpsest::cli
