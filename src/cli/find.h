// What a name on the command line stands for: one meaning for every verb. What `ls` prints, every verb takes.
#pragma once

#include <string>
#include <vector>

namespace palimpsest::cli {

struct Place {
    enum class Kind { run, sweep, folder };
    Kind kind = Kind::folder;
    std::string folder;
};

// A folder, as it is named from here or from the results ("quickstart", "quickstart/05b90002-delta", "latest"), or the beginning of
// a run's id, of its folder's name, or of that path. Error(usage) says what there is, or which runs it may be.
Place find_place(const std::string& name, const std::string& results);

// The same for verbs that take one run: Error(usage) with a hint where the name stands for more.
std::string find_run(const std::string& name, const std::string& results);

// The folder of a run as a name that find_place takes: from the results where it is below them, else from here.
std::string name_of(const std::string& folder, const std::string& results);

// The id that the name of a run's folder begins with, whole or its first digits; "" where it was named by somebody else.
std::string id_in_name(const std::string& folder);

}  // namespace palimpsest::cli
