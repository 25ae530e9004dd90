#include "core/cgroup.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

namespace palimpsest {
namespace {

double smallest_on_the_way(const std::string& root, std::string group, bool version_2, const GroupLimit& limit) {
    double smallest = 0;
    while (true) {
        const double here = limit(root + group, version_2);
        if (here > 0 && (smallest == 0 || here < smallest)) smallest = here;
        if (group.empty() || group == "/") return smallest;
        group.erase(group.find_last_of('/'));
    }
}

}  // namespace

double smallest_limit(const std::string& groups, const std::string& root, std::string_view controller, const GroupLimit& limit) {
    double smallest = 0;
    std::istringstream lines(groups);
    for (std::string line; std::getline(lines, line);) {
        // A line reads "0::/group" in version 2 and "4:cpu,cpuacct:/group" in version 1.
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos || line.size() == second + 1 || line[second + 1] != '/')
            continue;
        const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
        const bool version_2 = controllers.empty();
        if (!version_2 && fmt::format(",{},", controllers).find(fmt::format(",{},", controller)) == std::string::npos) continue;
        const double here = smallest_on_the_way(version_2 ? root : root + "/" + controllers, group, version_2, limit);
        if (here > 0 && (smallest == 0 || here < smallest)) smallest = here;
    }
    return smallest;
}

std::string small_file(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    if (file) text << file.rdbuf();
    return text.str();
}

}  // namespace palimpsest
