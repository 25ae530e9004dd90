#include "core/memory.h"

#include "core/cgroup.h"

#include <algorithm>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>

namespace palimpsest {
namespace {

// Returns the number after a word that begins a line, or 0 where no line begins with it.
double number_after(const std::string& text, const std::string& word) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream in(line);
        std::string first;
        double number = 0;
        if (in >> first && first == word && in >> number) return number;
    }
    return 0;
}

double number_in(const std::string& text) {
    std::istringstream in(text);
    double number = 0;
    return in >> number ? number : 0;  // "max" is no number
}

}  // namespace

double available_memory(const std::string& meminfo) { return number_after(meminfo, "MemAvailable:") * 1024; }

double cgroup_memory(const std::string& groups, const std::string& root) {
    return smallest_limit(groups, root, "memory", [](const std::string& folder, bool version_2) {
        const double limit = number_in(small_file(folder + (version_2 ? "/memory.max" : "/memory.limit_in_bytes")));
        if (limit <= 0 || limit > 1e18) return 0.0;  // version 1 writes about 2^63 for no limit
        // The kernel counts cached files as used, but gives them up when memory is needed, so they are left out.
        const double used = number_after(small_file(folder + "/memory.stat"), version_2 ? "anon" : "total_rss");
        return std::max(1.0, limit - used);
    });
}

double usable_memory() {
    const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
    double bytes = available_memory(small_file("/proc/meminfo"));
    if (bytes <= 0) bytes = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * page;
    const double left = cgroup_memory(small_file("/proc/self/cgroup"), "/sys/fs/cgroup");
    if (left > 0) bytes = std::min(bytes, left);
    rlimit limit = {};
    if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        bytes =
            std::min(bytes, std::max(1.0, static_cast<double>(limit.rlim_cur) - number_in(small_file("/proc/self/statm")) * page));
    return bytes;
}

}  // namespace palimpsest
