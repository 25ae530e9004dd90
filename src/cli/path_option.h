// Options that name a file or a folder.
#pragma once

#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace palimpsest::cli {

// Adds an option for a path. "~" and "~/…" mean the home folder, because a shell leaves them as they are behind the "=" of
// --results=~/x. An empty text, as an unset variable of a script gives it, is an error.
CLI::Option* add_path(CLI::App& verb, const std::string& names, std::string& path, const std::string& help);

}  // namespace palimpsest::cli
