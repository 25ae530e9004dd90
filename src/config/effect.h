// Keys that change nothing. A sweep over one would train the same run several times, and a record of one would tell what never was.
// So a key that does not count in a run is left out of its identity and its record; and where a person has set it nonetheless, in
// the file or for this call, that is an error. It is none where something later overrules it: a file's key gives way to the command
// line, a base's to every file, and what a sweep varies may leave a key without effect at some of its points. A default written out
// is no error either. Internal to this floor.
#pragma once

#include "config/compose.h"
#include "config/spec.h"

#include <string>
#include <vector>

namespace palimpsest {

class Effects {
public:
    // Whoever takes defaults from a section: a segment from `task`, a layer from its mixer's options. Settled.
    struct User {
        const void* object = nullptr;
        const Value* own = nullptr;  // the options written for it alone; nullptr: none
        std::string path;            // "task.train.0"
    };

    Effects(const Value& root, const std::vector<Setting>& settings, RunSpec& run, Diagnostics& errors)
        : root_(root), settings_(settings), run_(run), errors_(errors) {}

    // Judges the keys of a section that stands for itself. `object` is what was read, settled or not.
    void judge(const AnySchema& schema, const std::string& path, const void* object);
    // The same of a section of defaults and its users, of which there may be none. `kind`: what a user is called ("segment").
    void judge(const AnySchema& schema, const std::string& path, const void* object, const std::vector<User>& users,
               const char* kind);
    // The run has no use for the section, which is no error.
    void not_used(const std::string& path);
    // `path` does not count, because of `decided_by`. `why` follows "'train.steps' has no effect: ".
    void no_effect(const std::string& path, const std::vector<std::string>& decided_by, const std::string& why);

    // Tells what a person should know of the values in use.
    void caution(const AnySchema& schema, const std::string& path, const void* object);

private:
    enum class Level { defaulted, base, file, argument };  // what is set later is greater
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
