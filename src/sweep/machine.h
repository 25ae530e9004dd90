// The machine and the program, in words: written into every run, printed by `doctor` and `--version`.
#pragma once

#include "store/attributes.h"

#include <string>
#include <vector>

namespace palimpsest {

std::string cpu_model();                // "AMD EPYC 7763 64-Core Processor"; "unknown"
std::vector<std::string> gpu_models();  // of the driver's own list; empty without a driver
std::string gpu_driver();               // "" without one
std::string libtorch_version();
std::string libtorch_cuda();  // "CUDA found", or why not

// How the sources that this program was built from differ from its commit, new files included: text of `git diff`; "" without a
// commit.
std::string code_changes();

// Of this process, now: commit, command, versions, hardware, scheduler. `command`: as one types it.
Attributes process_provenance(const std::string& command);

}  // namespace palimpsest
