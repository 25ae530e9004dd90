// Keys that change nothing. A sweep over such a key would train the same run several times, and a record of it would state what
// never was. So a key that does not count in a run is left out of the run's identity and record. It is an error where a person has
// set the key nonetheless, in the file or for this call, except where something later overrules the key: a file's key gives way to
// the command line, a base's key to every file, and a swept key may leave another without effect at some points. A default written
// out is no error either. Internal to this floor.
#pragma once

#include "config/compose.h"
#include "config/spec.h"

#include <string>
#include <vector>

namespace palimpsest {

class Effects {
public:
    // A `User` takes defaults from a section: a segment from `task`, a layer from its mixer's options.
    struct User {
        const void* object = nullptr;  // the user's options as a struct, settled
        const Value* own = nullptr;    // the options written for this user alone; nullptr: none
        std::string path;              // "task.train.0"
    };

    Effects(const Value& root, const std::vector<Setting>& settings, RunSpec& run, Diagnostics& errors)
        : root_(root), settings_(settings), run_(run), errors_(errors) {}

    // Judges the keys of a section that has no users. `object` is what was read from the section, settled or not.
    void judge(const AnySchema& schema, const std::string& path, const void* object);
    // Judges the keys of a section of defaults for its users, of which there may be none. `kind` names a user ("segment").
    void judge(const AnySchema& schema, const std::string& path, const void* object, const std::vector<User>& users,
               const char* kind);
    // Tells that the run has no use for the section, which is no error.
    void not_used(const std::string& path);
    // Reports that `path` does not count, because of `decided_by`. `why` follows "'train.steps' has no effect: ".
    void no_effect(const std::string& path, const std::vector<std::string>& decided_by, const std::string& why);

    // Adds to the run the cautions about the values in use.
    void caution(const AnySchema& schema, const std::string& path, const void* object);

private:
    enum class Level { defaulted, base, file, argument };  // a key set later has the greater level
    Level level(const Value* value) const;
    bool varies_apart(const std::string& decider, const std::string& path) const;
    bool is_default(const AnySchema& schema, const Option& option, const std::string& path) const;
    void judge_key(const AnySchema& schema, const Option& option, const std::string& section,
                   const std::vector<std::string>& sections);

    const Value& root_;
    const std::vector<Setting>& settings_;
    RunSpec& run_;
    Diagnostics& errors_;
};

}  // namespace palimpsest
