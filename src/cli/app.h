// The command line: verbs, the errors of their use, and the exit code.
#pragma once

#include "core/error.h"

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace palimpsest::cli {

// Parses and runs one command; returns what the shell gets. Nothing is thrown.
int run_program(int argc, char** argv);

// What the verbs know of the call, and what the chosen one wants done.
struct Session {
    std::vector<std::string> command;  // argv, as typed
    std::function<ExitCode()> action;
};

// For verbs that compute. A thread of OpenMP that waits for the others keeps its processor busy by default; where something else
// runs too, that is the processor the others wait for (measured on two: a step of a small model took 4 to 14 times as long).
// libgomp reads its settings when it is loaded, so the program starts itself anew, once, unless the user has set them.
void wait_without_spinning(const std::vector<std::string>& command);

// Each declares its verb; called once.
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

std::vector<std::pair<std::string, std::string>> all_versions();  // of the build and of what is linked at run time

}  // namespace palimpsest::cli
