// What a name on the command line stands for. It means the same to every verb, and every verb takes the names that `ls` prints.
#pragma once

#include <string>
#include <vector>

namespace palimpsest::cli {

struct Place {
    enum class Kind { run, sweep, folder };
    Kind kind = Kind::folder;
    std::string folder;
};

// Returns the place of a name. The name is a folder, as seen from here or from the results ("quickstart",
// "quickstart/05b90002-delta", "latest"), or the beginning of a run's id, of its folder's name, or of that path. Throws
// Error(usage) that tells what there is, or which runs the name may be.
Place find_place(const std::string& name, const std::string& results);

// Returns the folder of the one run that a name stands for. Throws Error(usage) with a hint where the name stands for more.
std::string find_run(const std::string& name, const std::string& results);

// Returns the folder of a run as a name that find_place takes: as seen from the results around it, else from here.
std::string name_of(const std::string& folder, const std::string& results);

// Returns the id, or its first digits, at the beginning of the name of a run's folder, or "" where a person has named it.
std::string id_in_name(const std::string& folder);

}  // namespace palimpsest::cli
