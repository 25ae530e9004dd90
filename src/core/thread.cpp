#include "core/thread.h"

#include "core/cgroup.h"

#include <algorithm>
#include <sched.h>
#include <sstream>
#include <thread>

namespace palimpsest {
namespace {

// The text is "150000 100000" (quota and period in microseconds); without a quota it is "max 100000" or "-1 100000".
double quota_of(const std::string& text) {
    std::istringstream in(text);
    double quota = 0, period = 0;
    return (in >> quota >> period) && quota > 0 && period > 0 ? quota / period : 0;
}

}  // namespace

double cgroup_cpus(const std::string& groups, const std::string& root) {
    return smallest_limit(groups, root, "cpu", [](const std::string& folder, bool version_2) {
        if (version_2) return quota_of(small_file(folder + "/cpu.max"));
        return quota_of(small_file(folder + "/cpu.cfs_quota_us") + " " + small_file(folder + "/cpu.cfs_period_us"));
    });
}

int usable_threads() {
    int threads = static_cast<int>(std::thread::hardware_concurrency());
    cpu_set_t mask;
    CPU_ZERO(&mask);
    // The call fails on machines of more than 1024 CPUs; there the count of the machine stands.
    if (::sched_getaffinity(0, sizeof mask, &mask) == 0) threads = CPU_COUNT(&mask);
    const double quota = cgroup_cpus(small_file("/proc/self/cgroup"), "/sys/fs/cgroup");
    if (quota > 0) threads = std::min(threads, static_cast<int>(quota));
    return std::max(threads, 1);
}

}  // namespace palimpsest
