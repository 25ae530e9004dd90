// How many threads this process may really use: the machine's count misleads inside containers and batch jobs.
#pragma once

#include <string>

namespace palimpsest {

// The CPUs of the affinity mask (taskset, Slurm), and no more than the CPU quota of the control groups (containers); at least 1.
int usable_threads();

// The smallest CPU quota on the way from the process's group to the root, in CPUs; 0 when there is none. `groups` is the text of
// /proc/self/cgroup, `root` the mount point (version 2, or the parent of cpu, cpuacct… in version 1).
double cgroup_cpus(const std::string& groups, const std::string& root);

}  // namespace palimpsest
