// LOCK in the folder of a run: JSON that says which process works on it, with a heartbeat. A holder writes it only through a file
// in which it has read its own token, so one that was suspended for long never overwrites the lock of somebody who has taken the
// run over meanwhile.
#pragma once

#include "core/error.h"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace palimpsest {

std::string host_name();  // "unknown" where the machine has none

// Another process has taken the run over: nothing in its folder is ours any more.
class LostLock : public Error {
public:
    explicit LostLock(const std::string& message) : Error(ExitCode::run_failed, message) {}
};

// What LOCK says. One that cannot be understood (a disk failed, somebody edited it) has no token, and counts as dead.
struct LockText {
    std::string host, pid_namespace, process_start, token;
    std::int64_t pid = 0, created = 0, heartbeat = 0;  // times in seconds since 1970

    std::string json() const;
    std::string holder() const;  // "pid 4711 on host a"
    bool alive() const;          // by its process on this host, by its heartbeat elsewhere
};
std::optional<LockText> read_lock(const std::string& path);  // nothing when there is no such file

// A lock that this process holds. Several threads may use it. A LOCK that was not released is dead as soon as this process is.
class RunLock {
public:
    // A heartbeat older than this is stale. It leaves room for clocks of two hosts that differ by a minute.
    static constexpr std::chrono::seconds stale_after{120};

    // Takes LOCK by exclusive create; a stale one is taken over. Error(usage) "already running (pid, host)" otherwise.
    // `good_for`: how long a failure of the disk may last; only a test has another.
    explicit RunLock(const std::string& folder, std::chrono::steady_clock::duration good_for = stale_after);
    RunLock(const RunLock&) = delete;
    RunLock& operator=(const RunLock&) = delete;

    // Writes the heartbeat and looks whether the lock still is ours, unless both were done within the last `interval`. A failure of
    // the disk is told only once it has lasted for as long as the lock is good. LostLock once another process has it.
    // Call it often, and with an interval of 0 before anything is written in the folder.
    void heartbeat(std::chrono::steady_clock::duration interval = std::chrono::seconds(5));
    // Removes LOCK if it is ours.
    void release();

private:
    bool take_over(const std::string& dead, const std::string& mine, std::string& rival);
    void beat();  // writes the heartbeat, or throws LostLock

    std::string folder_, path_;
    std::chrono::steady_clock::duration good_for_;
    LockText mine_;
    std::mutex mutex_;
    bool released_ = false;
    std::string lost_;     // who has it now
    std::string failure_;  // of the disk, while it lasts
    std::chrono::steady_clock::time_point tried_{}, confirmed_{};
};

}  // namespace palimpsest
