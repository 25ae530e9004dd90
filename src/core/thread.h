// How many threads this process may really use: the machine's count misleads inside containers and batch jobs.
#pragma once

#include <string>

namespace palimpsest {

// Returns the CPUs of the affinity mask (taskset, Slurm), within the CPU quota of the control groups (containers); at least 1.
int usable_threads();

// Returns the smallest CPU quota, in CPUs, of the process's control groups, or 0. core/cgroup.h explains `groups` and `root`.
double cgroup_cpus(const std::string& groups, const std::string& root);

}  // namespace palimpsest
