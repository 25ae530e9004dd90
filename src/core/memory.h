// How much memory this process can have: the machine's count misleads inside containers and batch jobs.
#pragma once

#include <string>

namespace palimpsest {

// Bytes that are free or can be made free, and no more than the control groups (containers, batch jobs) and the limit of the user
// (ulimit -v) leave.
double usable_memory();

// The bytes that /proc/meminfo calls available; 0 where it does not say.
double available_memory(const std::string& meminfo);
// What the tightest control group leaves, in bytes; 0 where none sets a limit. For `groups` and `root` see core/cgroup.h.
double cgroup_memory(const std::string& groups, const std::string& root);

}  // namespace palimpsest
