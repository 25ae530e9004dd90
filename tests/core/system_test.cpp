// Time, threads and version.
#include "core/file.h"
#include "core/memory.h"
#include "core/thread.h"
#include "core/time.h"
#include "core/version.h"
#include "temporary_folder.h"

#include <regex>
#include <sched.h>
#include <sys/resource.h>
#include <thread>

#include "catch.h"

using namespace palimpsest;
using std::chrono::milliseconds;
using std::chrono::system_clock;

TEST_CASE("times are UTC in ISO 8601, whatever the time zone") {
    const char* before = std::getenv("TZ");
    const std::string zone = before != nullptr ? before : "";
    ::setenv("TZ", "Asia/Kolkata", 1);
    CHECK(iso8601_utc(system_clock::time_point(milliseconds(0))) == "1970-01-01T00:00:00Z");
    CHECK(iso8601_utc(system_clock::time_point(milliseconds(951827696999))) == "2000-02-29T12:34:56Z");
    CHECK(iso8601_utc(system_clock::time_point(milliseconds(-1))) == "1969-12-31T23:59:59Z");
    zone.empty() ? ::unsetenv("TZ") : ::setenv("TZ", zone.c_str(), 1);
    CHECK(std::regex_match(now_utc(), std::regex("20\\d\\d-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ")));
}

TEST_CASE("the smallest quota on the way to the root holds") {
    const TemporaryFolder folder;
    const std::string& root = folder.path;
    make_folders(root + "/job/step");
    CHECK(cgroup_cpus("0::/job/step\n", root) == 0);
    write_file_atomic(root + "/job/step/cpu.max", "max 100000\n");
    CHECK(cgroup_cpus("0::/job/step\n", root) == 0);
    write_file_atomic(root + "/job/cpu.max", "250000 100000\n");
    CHECK(cgroup_cpus("0::/job/step\n", root) == 2.5);
    CHECK(cgroup_cpus("0::/\n", root) == 0);
    write_file_atomic(root + "/cpu.max", "150000 100000\n");
    CHECK(cgroup_cpus("0::/job/step\n", root) == 1.5);
    CHECK(cgroup_cpus("0::/\n", root) == 1.5);
}

TEST_CASE("quotas of control groups version 1 are read too") {
    const TemporaryFolder folder;
    const std::string group = folder.path + "/cpu,cpuacct/docker";
    make_folders(group);
    write_file_atomic(group + "/cpu.cfs_quota_us", "-1\n");
    write_file_atomic(group + "/cpu.cfs_period_us", "100000\n");
    const std::string groups = "11:cpuset:/other\n4:cpu,cpuacct:/docker\n1:name=systemd:/docker\n";
    CHECK(cgroup_cpus(groups, folder.path) == 0);
    write_file_atomic(group + "/cpu.cfs_quota_us", "300000\n");
    CHECK(cgroup_cpus(groups, folder.path) == 3);
}

TEST_CASE("text that is no control group is ignored") {
    CHECK(cgroup_cpus("", "/nowhere") == 0);
    CHECK(cgroup_cpus("nonsense\n0::\n:\n::relative\n", "/nowhere") == 0);
}

TEST_CASE("memory is what the machine, the control groups and the user's limit leave") {
    CHECK(available_memory("MemTotal:       24000 kB\nMemAvailable:   1000 kB\nCached: 7 kB\n") == 1'024'000);
    CHECK(available_memory("MemTotal:       24000 kB\n") == 0);

    const TemporaryFolder folder;
    const std::string root = folder.path;
    make_folders(root + "/job/step");
    CHECK(cgroup_memory("0::/job/step\n", root) == 0);
    write_file_atomic(root + "/job/step/memory.max", "max\n");
    CHECK(cgroup_memory("0::/job/step\n", root) == 0);
    write_file_atomic(root + "/job/memory.max", "5000\n");
    CHECK(cgroup_memory("0::/job/step\n", root) == 5000);
    write_file_atomic(root + "/job/memory.stat", "file 4000\nanon 1500\n");
    CHECK(cgroup_memory("0::/job/step\n", root) == 3500);
    make_folders(root + "/memory/docker");
    write_file_atomic(root + "/memory/docker/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK(cgroup_memory("7:memory:/docker\n", root) == 0);
    write_file_atomic(root + "/memory/docker/memory.limit_in_bytes", "2000\n");
    write_file_atomic(root + "/memory/docker/memory.stat", "cache 900\ntotal_rss 300\n");
    CHECK(cgroup_memory("7:memory:/docker\n", root) == 1700);

    const double usable = usable_memory();
    CHECK(usable > 1e6);
#ifndef __SANITIZE_ADDRESS__  // the sanitizer maps terabytes for itself
    rlimit before = {};
    REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
    rlimit tight = before;
    tight.rlim_cur = rlim_t{1} << 30;
    REQUIRE(::setrlimit(RLIMIT_AS, &tight) == 0);
    const double limited = usable_memory();
    REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(limited < 1 << 30);
#endif
}

TEST_CASE("usable threads follow the affinity mask") {
    CHECK(usable_threads() >= 1);
    int inside = 0;
    std::thread([&] {  // the mask belongs to a thread: the others keep theirs
        cpu_set_t mask, one;
        REQUIRE(::sched_getaffinity(0, sizeof mask, &mask) == 0);
        int cpu = 0;
        while (!CPU_ISSET(cpu, &mask)) ++cpu;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
        inside = usable_threads();
    })
        .join();
    CHECK(inside == 1);
}

TEST_CASE("the version says what was built") {
    const BuildInfo& info = build_info();
    CHECK(std::regex_match(info.version, std::regex("\\d+\\.\\d+\\.\\d+")));
    CHECK(std::regex_match(info.commit, std::regex("[0-9a-f]{40}|unknown")));
    CHECK(info.compiler.find_first_of("0123456789") != std::string::npos);
    CHECK(std::regex_match(info.hdf5, std::regex("1\\.\\d+\\.\\d+.*")));
    CHECK(info.flags.find("-ffp-contract=off") != std::string::npos);
    CHECK(short_commit() == (info.commit == "unknown" ? info.commit : info.commit.substr(0, 12)) + (info.dirty ? "+" : ""));
    const auto lines = version_lines();
    CHECK(lines.front().second == info.version);
    for (const auto& [name, value] : lines) {
        INFO(name);
        CHECK_FALSE(value.empty());
    }
}
