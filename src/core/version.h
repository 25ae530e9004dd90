// What this program was built from, for run records and --version. Floors above append what they link (HDF5, LibTorch, CUDA).
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace palimpsest {

struct BuildInfo {
    std::string version;   // of the project
    std::string commit;    // 40 hex digits; "unknown" outside a repository
    bool dirty = false;    // at build time the sources differed from the commit, or git did not track some
    std::string compiler;  // "GNU 12.2.0"
    std::string flags;     // of the build type, and our own that change numbers
    std::string build_type;
    std::string fmt, spdlog, yaml_cpp, hdf5;  // versions of the headers
    std::string cuda;                         // "13.0.88, architectures 80, 90", or "no, " and why
};

const BuildInfo& build_info();
std::string short_commit();                                        // "1a2b3c4d5e6f", with "+" when dirty
std::vector<std::pair<std::string, std::string>> version_lines();  // ("commit", "…"), in the order to print

}  // namespace palimpsest
