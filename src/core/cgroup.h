// Control groups: what containers and batch jobs allow this process.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace palimpsest {

// Returns the smallest limit of a controller ("cpu", "memory") on the way from the process's group to the root, or 0 where there is
// none. `groups` is the text of /proc/self/cgroup, `root` the mount point (in version 1 the parent of cpu, memory…). A `GroupLimit`
// reads the folder of one group and returns 0 where that group sets no limit.
using GroupLimit = std::function<double(const std::string& folder, bool version_2)>;
double smallest_limit(const std::string& groups, const std::string& root, std::string_view controller, const GroupLimit& limit);

// Returns the text of a small file, or "" where there is none.
std::string small_file(const std::string& path);

}  // namespace palimpsest
