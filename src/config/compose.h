// From files and arguments to one tree of values, each with its place. Internal to this floor.
#pragma once

#include "config/diagnostics.h"
#include "config/value.h"

#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

// A `Setting` is a key that a person set for this call, by an argument or by the sweep. A setting without an effect is an error.
struct Setting {
    std::string path;
    Source source;  // of the value
    bool swept = false;
};

bool can_be_read(const std::string& path);         // also a pipe or a device, such as <(…) and /dev/stdin
std::string read_config(const std::string& path);  // throws Error(usage) where the file is too large for a config

// Returns the text's values laid over those of its bases: maps merge, lists and single values replace. Bases are looked up beside
// the file that names them, then in `config_dirs`. Later bases win over earlier ones, and a file over its bases. Each file is read
// once, however many files name it. Throws where a file is no YAML, because keys of the other files would then only look wrong.
Value compose(const std::string& name, const std::string& text, const std::vector<std::string>& config_dirs, Diagnostics& errors);

// Applies overrides "a.b=value" in order. Returns the keys that were set.
std::vector<Setting> apply_overrides(Value& root, const std::vector<std::string>& overrides, Diagnostics& errors);

// Sets the value at one dotted path; numbers index lists. `key` is the place of the path, for errors about its parts.
void set_path(Value& root, const std::string& path, Value value, const Source& key, Diagnostics& errors);
const Value* find_path(const Value& root, std::string_view path);

bool is_below(std::string_view path, std::string_view ancestor);  // "task.pairs" is below "task" and below itself

}  // namespace palimpsest
