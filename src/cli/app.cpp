#include "cli/app.h"

#include "cli/output.h"
#include "config/diagnostics.h"
#include "core/log.h"
#include "core/text.h"
#include "core/version.h"
#include "store/run_reader.h"
#include "sweep/machine.h"
#include "sweep/stop.h"

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <exception>
#include <sys/prctl.h>
#include <unistd.h>

namespace palimpsest::cli {
namespace {

constexpr const char* exit_codes = R"(Exit codes:
  0    all good
  1    a run failed
  2    bad usage or config; nothing was started
  3    a sweep finished, some of its runs failed
  4    a result check failed
  75   stopped by SIGTERM, SIGUSR1, SIGUSR2 or SIGXCPU with a checkpoint; please start again
  130  stopped by SIGINT (Ctrl-C) or SIGHUP (its terminal was closed) with a checkpoint

Results go to stdout, everything else to stderr. `palimpsest VERB --help` explains a verb.)";

std::vector<std::string> names_of_verbs(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* verb : app.get_subcommands([](const CLI::App* any) { return !any->get_group().empty(); }))
        names.push_back(verb->get_name());
    return names;
}

std::vector<std::string> names_of_options(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    return names;
}

// Returns whether a word is an option: --jobs, --jobs=4, -j, -j4.
bool is_option(const CLI::App& app, const std::string& word) {
    const std::string name = word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
    const auto options = app.get_options();
    return std::any_of(options.begin(), options.end(), [&](const CLI::Option* option) { return option->check_name(name); });
}

// Returns the verb that was called: {"ls"}, or {"bench", "step"}.
std::vector<const CLI::App*> chosen_verbs(const CLI::App& app) {
    std::vector<const CLI::App*> verbs;
    for (auto next = app.get_subcommands(); !next.empty(); next = next.front()->get_subcommands()) verbs.push_back(next.front());
    return verbs;
}

std::string path_of(const std::vector<const CLI::App*>& verbs) {
    std::string path;
    for (const CLI::App* verb : verbs) path += verb->get_name() + " ";
    return path;
}

// Explains an error of parsing. CLI11 only says that a word was not expected; a person wants to know what would have been.
std::string explain(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& command) {
    const std::vector<const CLI::App*> chosen = chosen_verbs(app);
    const CLI::App& at = chosen.empty() ? app : *chosen.back();
    const std::vector<std::string> verbs = names_of_verbs(at);
    // A known option with a value that it does not take has a message of its own.
    const bool unexpected =
        dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr || dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
    std::size_t passed = 0;  // verbs before the unexpected word
    for (std::size_t i = 1; unexpected && i < command.size(); ++i) {
        const std::string& word = command[i];
        if (word == "--") break;
        if (passed < chosen.size() && word == chosen[passed]->get_name()) {
            ++passed;
            continue;
        }
        if (!verbs.empty() && !word.starts_with("-"))
            return fmt::format("unknown verb '{}{}'{}\nverbs: {}", path_of(chosen), word, did_you_mean(word, verbs),
                               join(verbs, ", "));
        if (!word.starts_with("-") || word.size() < 2) continue;
        if (is_option(at, word)) continue;
        std::string verb = path_of(chosen);
        if (!verb.empty()) verb = " of " + verb.substr(0, verb.size() - 1);
        const std::string name = word.substr(0, word.find('='));
        return fmt::format("unknown option '{}'{}{}", name, verb, did_you_mean(name, names_of_options(at)));
    }
    if (!verbs.empty() && !chosen.empty()) return fmt::format("{}needs a verb\nverbs: {}", path_of(chosen), join(verbs, ", "));
    std::string text = error.what();
    if (const std::size_t dot = text.find_last_not_of(" \n"); dot != std::string::npos) text.erase(dot + 1);
    return text;
}

// Logs an error. A report of config errors has "file:line:col: error:" of its own.
void say(const Error& error) {
    const std::string text = error.what();
    const bool says_so = text.substr(0, text.find('\n')).find("error: ") != std::string::npos;
    log_message(says_so ? LogLevel::info : LogLevel::error, text);
}

ExitCode execute(int argc, char** argv) {
    Session session;
    session.command.assign(argv, argv + argc);
    CLI::App app(
        "Synthetic recall and fact-update tasks: trains small models, records, and shows who remembers, who forgets, who can "
        "overwrite.",
        "palimpsest");
    app.footer(exit_codes);
    app.require_subcommand(0, 1);
    bool version = false;
    app.add_flag("--version", version, "version, commit, compiler and libraries");
    for (const auto add : {add_run, add_sweep, add_work, add_resume, add_check, add_ls, add_show, add_compare, add_export, add_list,
                           add_describe, add_bench, add_doctor})
        add(app, session);

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {
            app.exit(error);  // prints --help to stdout
            return ExitCode::ok;
        }
        log_error("{}\nsee: palimpsest {}--help", explain(app, error, session.command), path_of(chosen_verbs(app)));
        return ExitCode::usage;
    }
    if (version) {
        std::string text;
        for (const auto& [name, value] : all_versions()) text += fmt::format("{:<18}{}\n", name, value);
        print(text);
        return ExitCode::ok;
    }
    if (!session.action) {
        log_error("no verb is given\nsee: palimpsest --help");
        return ExitCode::usage;
    }
    return session.action();
}

}  // namespace

void wait_without_spinning(const std::vector<std::string>& command) {
    if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
    if (::setenv("OMP_WAIT_POLICY", "passive", 1) != 0) return;
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execv("/proc/self/exe", arguments.data());  // returns only where it fails; then the program is slower, no more
}

std::vector<std::pair<std::string, std::string>> all_versions() {
    auto lines = version_lines();
    lines.emplace_back("LibTorch", libtorch_version());
    lines.emplace_back("CUDA", libtorch_cuda());
    lines.emplace_back("HDF5 at run time", hdf5_version());
    return lines;
}

int run_program(int argc, char** argv) {
    reset_inherited_signals();
    ::prctl(PR_SET_NAME, "palimpsest");  // a program begun anew from /proc/self/exe would be called "exe"
    start_log(LogLevel::info, stderr_terminal());
    ExitCode code = ExitCode::run_failed;
    try {
        code = execute(argc, argv);
    } catch (const Error& error) {
        say(error);
        code = error.code();
    } catch (const std::exception& error) {
        log_error("{}", error.what());
    }
    stop_log();
    return static_cast<int>(code);
}

}  // namespace palimpsest::cli
