// From files and arguments to one tree of values, each with its place. Internal to this floor.
#pragma once

#include "config/diagnostics.h"
#include "config/value.h"

#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

// A key that a person set for this call, by an argument or by the sweep: it must have an effect.
struct Setting {
    std::string path;
    Source source;  // of the value
    bool swept = false;
};

bool can_be_read(const std::string& path);         // a file, a pipe or a device, such as <(…) and /dev/stdin
std::string read_config(const std::string& path);  // Error(usage) for what is too large to be one

// The text with its bases under it: maps merge, lists and single values replace. Bases are looked up beside the file that names
// them, then in `config_dirs`; later bases win over earlier ones, a file over its bases. Each file is read once, however many name
// it. Throws when a file cannot be read as YAML: what stands in the others would then only look wrong.
Value compose(const std::string& name, const std::string& text, const std::vector<std::string>& config_dirs, Diagnostics& errors);

// "a.b=value", in order. Returns what was set.
std::vector<Setting> apply_overrides(Value& root, const std::vector<std::string>& overrides, Diagnostics& errors);

// Sets one dotted path; numbers index lists. `key` is the place of the path, for errors about its parts.
void set_path(Value& root, const std::string& path, Value value, const Source& key, Diagnostics& errors);
const Value* find_path(const Value& root, std::string_view path);

bool is_below(std::string_view path, std::string_view ancestor);  // "task.pairs" is below "task" and below itself

}  // namespace palimpsest
