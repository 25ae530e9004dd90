#include "cli/path_option.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdlib>

namespace palimpsest::cli {
namespace {

std::string below_home(const std::string& path) {
    if (path.empty()) throw CLI::ValidationError("the path is empty; write one, such as results");
    if (path[0] != '~') return path;
    const char* home = std::getenv("HOME");
    const bool of_another = path.size() > 1 && path[1] != '/';
    if (of_another || home == nullptr || *home == '\0')
        throw CLI::ValidationError(
            fmt::format("'{}' is not understood; write the whole path, or ./{} for a folder of that name", path, path));
    return home + path.substr(1);
}

}  // namespace

CLI::Option* add_path(CLI::App& verb, const std::string& names, std::string& path, const std::string& help) {
    CLI::Option* option = verb.add_option(names, path, help)->transform(below_home);
    return path.empty() ? option : option->capture_default_str();
}

}  // namespace palimpsest::cli
