// What the control groups of containers and batch jobs allow this process.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace palimpsest {

// The smallest limit of a controller ("cpu", "memory") on the way from the process's group to the root; 0 when there is none.
// `groups` is the text of /proc/self/cgroup, `root` the mount point (version 2, or the parent of cpu, memory… in version 1).
// `limit` reads one group's folder, and says 0 where it sets no limit.
using GroupLimit = std::function<double(const std::string& folder, bool version_2)>;
double smallest_limit(const std::string& groups, const std::string& root, std::string_view controller, const GroupLimit& limit);

// The text of a small file; "" where there is none.
std::string small_file(const std::string& path);

}  // namespace palimpsest
