// How many threads this process may really use: the machine's count misleads inside containers and batch jobs.
#pragma once

#include <string>

namespace palimpsest {

// Returns the CPUs of the affinity mask (taskset, Slurm), but no more than the CPU quota of the control groups
// (containers) and at least 1.
int usable_threads();

// Returns the smallest CPU quota, in CPUs, on the way from the process's group to the root, or 0 where there is none. core/cgroup.h
// explains `groups` and `root`.
double cgroup_cpus(const std::string& groups, const std::string& root);

}  // namespace palimpsest
