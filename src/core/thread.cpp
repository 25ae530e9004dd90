#include "core/thread.h"

#include <algorithm>
#include <fstream>
#include <sched.h>
#include <sstream>
#include <thread>

namespace palimpsest {
namespace {

std::string content(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    if (file) text << file.rdbuf();
    return text.str();
}

// "150000 100000" (quota and period in microseconds); no quota reads "max 100000" or "-1 100000".
double quota_of(const std::string& text) {
    std::istringstream in(text);
    double quota = 0, period = 0;
    return (in >> quota >> period) && quota > 0 && period > 0 ? quota / period : 0;
}

double smallest_on_the_way(const std::string& root, std::string group, bool version_2) {
    double smallest = 0;
    while (true) {
        const std::string folder = root + group;
        const double cpus = quota_of(version_2 ? content(folder + "/cpu.max")
                                               : content(folder + "/cpu.cfs_quota_us") + " " + content(folder + "/cpu.cfs_period_us"));
        if (cpus > 0 && (smallest == 0 || cpus < smallest)) smallest = cpus;
        if (group.empty() || group == "/") return smallest;
        group.erase(group.find_last_of('/'));
    }
}

}  // namespace

double cgroup_cpus(const std::string& groups, const std::string& root) {
    double smallest = 0;
    std::istringstream lines(groups);
    for (std::string line; std::getline(lines, line);) {
        // "0::/group" in version 2; "4:cpu,cpuacct:/group" in version 1.
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos || line.size() == second + 1 || line[second + 1] != '/') continue;
        const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
        const bool version_2 = controllers.empty();
        if (!version_2 && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
        const double cpus = smallest_on_the_way(version_2 ? root : root + "/" + controllers, group, version_2);
        if (cpus > 0 && (smallest == 0 || cpus < smallest)) smallest = cpus;
    }
    return smallest;
}

int usable_threads() {
    int threads = static_cast<int>(std::thread::hardware_concurrency());
    cpu_set_t mask;
    CPU_ZERO(&mask);
    // Fails on machines of more than 1024 CPUs, where the count of the machine stands.
    if (::sched_getaffinity(0, sizeof mask, &mask) == 0) threads = CPU_COUNT(&mask);
    const double quota = cgroup_cpus(content("/proc/self/cgroup"), "/sys/fs/cgroup");
    if (quota > 0) threads = std::min(threads, static_cast<int>(quota));
    return std::max(threads, 1);
}

}  // namespace palimpsest
