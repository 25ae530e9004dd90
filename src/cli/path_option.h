// Options that name a file or a folder.
#pragma once

#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace palimpsest::cli {

// "~" and "~/…" are below the home folder: a shell leaves them as they are behind the "=" of --results=~/x. An empty text, as an
// unset variable of a script leaves it, is an error.
CLI::Option* add_path(CLI::App& verb, const std::string& names, std::string& path, const std::string& help);

}  // namespace palimpsest::cli
