// How much memory this process can have: the machine's count misleads inside containers and batch jobs.
#pragma once

#include <string>

namespace palimpsest {

// Returns the bytes that are free or can be freed, within control groups (containers, batch jobs) and the user's limit (ulimit -v).
double usable_memory();

// Returns the bytes that /proc/meminfo calls available, or 0 where it does not say.
double available_memory(const std::string& meminfo);
// Returns the bytes that the tightest control group leaves, or 0 without a limit. core/cgroup.h explains `groups` and `root`.
double cgroup_memory(const std::string& groups, const std::string& root);

}  // namespace palimpsest
