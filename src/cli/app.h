// The command line: verbs, errors in their use, and the exit code.
#pragma once

#include "core/error.h"

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace palimpsest::cli {

// Parses and runs one command, and returns the exit code for the shell. Nothing is thrown.
int run_program(int argc, char** argv);

// A `Session` is what the verbs know of the call, and the action of the chosen verb.
struct Session {
    std::vector<std::string> command;  // argv, as typed
    std::function<ExitCode()> action;
};

// Starts the program anew with threads that wait without spinning, for verbs that compute. By default an OpenMP thread that waits
// for the others keeps its processor busy; where something else runs too, that is the processor the others wait for (measured on
// two: a step of a small model took 4 to 14 times as long). libgomp reads its settings when it is loaded, so the restart is needed,
// once; settings of the user are left alone.
void wait_without_spinning(const std::vector<std::string>& command);

// Each function declares its verb, and is called once.
void add_run(CLI::App& app, Session& session);
void add_sweep(CLI::App& app, Session& session);
void add_work(CLI::App& app, Session& session);
void add_check(CLI::App& app, Session& session);
void add_resume(CLI::App& app, Session& session);
void add_list(CLI::App& app, Session& session);
void add_describe(CLI::App& app, Session& session);
void add_ls(CLI::App& app, Session& session);
void add_show(CLI::App& app, Session& session);
void add_compare(CLI::App& app, Session& session);
void add_export(CLI::App& app, Session& session);
void add_doctor(CLI::App& app, Session& session);
void add_bench(CLI::App& app, Session& session);

std::vector<std::pair<std::string, std::string>> all_versions();  // of the build, and of the libraries linked at run time

}  // namespace palimpsest::cli
