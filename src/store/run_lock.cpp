#include "store/run_lock.h"

#include "core/file.h"
#include "core/log.h"

#include <nlohmann/json.hpp>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <unistd.h>
#include <vector>

namespace palimpsest {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LockText, host, pid, pid_namespace, process_start, token, created, heartbeat)

namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

// A process number means something only inside its namespace: two containers may share a host name.
std::string this_pid_namespace() {
    std::error_code error;
    const fs::path link = fs::read_symlink("/proc/self/ns/pid", error);
    return error ? "" : link.string();
}

// When the process started, in clock ticks since boot: tells it from a later process of the same number. "" when it is gone, or
// dead and only waiting for its parent to notice.
std::string start_of_process(std::int64_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string stat;
    std::getline(file, stat, '\0');  // a process that ends meanwhile leaves nothing to read
    // pid (program) state … ; the program's name may hold blanks and parentheses. The start is field 22, the state field 3.
    const std::size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos) return "";
    std::istringstream fields(stat.substr(name_end + 1));
    std::string field, state;
    fields >> state;
    for (int number = 4; number <= 22; ++number) fields >> field;
    return state == "Z" || state == "X" ? "" : field;
}

LockText new_lock() {
    static std::atomic<unsigned> count{0};
    LockText lock;
    lock.host = host_name();
    lock.pid_namespace = this_pid_namespace();
    lock.pid = ::getpid();
    lock.process_start = start_of_process(lock.pid);
    lock.created = lock.heartbeat = std::time(nullptr);
    lock.token = fmt::format("{}-{}-{}-{}", lock.host, lock.pid, lock.process_start, count++);
    return lock;
}

LockText parse_lock(const std::string& text) {
    try {
        return Json::parse(text).get<LockText>();
    } catch (const Json::exception&) {
        return {};
    }
}

[[noreturn]] void cannot(const char* verb, const std::string& path, int error) {
    fail(ExitCode::run_failed, "cannot {} '{}': {}", verb, path, std::strerror(error));
}

}  // namespace

std::string host_name() {
    char name[256] = "";
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string LockText::json() const { return Json(*this).dump(2) + "\n"; }

std::string LockText::holder() const { return pid == 0 ? "an unreadable LOCK" : fmt::format("pid {} on host {}", pid, host); }

bool LockText::alive() const {
    if (host == host_name() && pid_namespace == this_pid_namespace()) {
        const std::string start = start_of_process(pid);
        return !start.empty() && start == process_start;
    }
    return std::time(nullptr) - heartbeat < RunLock::stale_after.count();
}

std::optional<LockText> read_lock(const std::string& path) {
    try {
        return parse_lock(read_file(path));
    } catch (const Error&) {
        if (!file_exists(path)) return std::nullopt;
        throw;
    }
}

// A dead lock may be found by several at once. Each lock has a token of its own, and who creates the claim on a dead token,
// exclusively, may replace that lock: LOCK is never absent meanwhile, so nobody slips in. Claimants can die too: then their token
// is claimed in turn. A claim is good only while LOCK still is the one that was found dead: it may have been replaced, and its
// claims removed, before ours.
bool RunLock::take_over(const std::string& dead, const std::string& mine, std::string& rival) {
    std::vector<std::string> claims;
    for (std::string token = dead;;) {
        claims.push_back(fmt::format("{}.tmp-claim-{}", path_, token));
        if (create_file(claims.back(), mine)) break;
        const std::optional<LockText> claimant = read_lock(claims.back());
        if (!claimant) return false;
        if (claimant->alive()) {
            rival = claimant->holder();
            return false;
        }
        token = claimant->token;
    }
    const std::optional<LockText> now = read_lock(path_);
    const bool still_dead = now && now->token == dead;
    if (still_dead) write_file_atomic(path_, mine);
    else claims = {claims.back()};
    for (const std::string& claim : claims) remove_file(claim);
    return still_dead;
}

RunLock::RunLock(const std::string& folder, Clock::duration good_for)
    : folder_(folder), path_(folder + "/LOCK"), good_for_(good_for), mine_(new_lock()) {
    // Each round takes the lock, finds it held, or sees it change hands.
    for (int round = 0; round < 100; ++round) {
        std::string rival;
        bool taken = create_file(path_, mine_.json());
        if (!taken) {
            const std::optional<LockText> found = read_lock(path_);
            if (!found) continue;
            if (found->token.empty() && round < 10) {  // Where a file system has no links, it may only just be in the making.
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                continue;
            }
            if (found->alive()) rival = found->holder();
            else taken = take_over(found->token, mine_.json(), rival);
        }
        if (!rival.empty()) fail(ExitCode::usage, "already running ({}): '{}'", rival, folder_);
        if (taken) {
            confirmed_ = tried_ = Clock::now();
            return;
        }
    }
    fail(ExitCode::run_failed, "cannot lock '{}': others keep taking it", folder_);
}

// The file that was opened and has our token stays ours: whoever takes the lock over puts another file in its place. Whether that
// has happened is looked at after the write, which may have taken long. LOCK is absent where a holder before us was suspended
// between looking at it and removing it: if nobody has taken it since, it is ours.
void RunLock::beat() {
    mine_.heartbeat = std::time(nullptr);
    const std::string text = mine_.json();  // as long as the one before, so that a reader sees one or the other
    if (const int file = ::open(path_.c_str(), O_RDWR | O_CLOEXEC); file >= 0) {
        char there[4096];
        const ssize_t size = ::pread(file, there, sizeof there, 0);
        const bool is_ours = size > 0 && parse_lock({there, static_cast<std::size_t>(size)}).token == mine_.token;
        const bool failed =
            size < 0 || (is_ours && (::pwrite(file, text.data(), text.size(), 0) != std::ssize(text) || ::fsync(file) != 0));
        const int error = errno;
        ::close(file);
        if (failed) cannot("write", path_, error);
    } else if (errno != ENOENT) {
        cannot("write", path_, errno);
    }
    std::optional<LockText> found = read_lock(path_);
    if (!found && !create_file(path_, text)) found = read_lock(path_);
    if (!found || found->token == mine_.token) return;
    if (found->token.empty()) fail(ExitCode::run_failed, "'{}' cannot be understood", path_);  // a failure of the disk
    throw LostLock(fmt::format("'{}': the lock was taken over by {}; this process stops", folder_, found->holder()));
}

void RunLock::heartbeat(Clock::duration interval) {
    const std::lock_guard lock(mutex_);
    if (released_) return;
    if (!lost_.empty()) throw LostLock(lost_);
    const Clock::time_point now = Clock::now();
    if (now - tried_ < interval) return;
    tried_ = now;
    try {
        beat();
        if (!failure_.empty()) log_info("'{}': the lock is held on to again", folder_);
        failure_.clear();
        confirmed_ = now;
    } catch (const LostLock& lost) {
        lost_ = lost.what();
        throw;
    } catch (const Error& error) {
        if (failure_.empty())
            log_warning("'{}': {}; the lock is good for {} s, and its heartbeat is tried again until then", folder_, error.what(),
                        stale_after.count());
        failure_ = error.what();
        if (now - confirmed_ >= good_for_)
            fail(ExitCode::run_failed, "'{}': the lock could not be held on to: {}", folder_, failure_);
    }
}

void RunLock::release() {
    const std::lock_guard lock(mutex_);
    if (released_) return;
    const std::optional<LockText> found = read_lock(path_);
    if (found && found->token == mine_.token) remove_file(path_);
    released_ = true;
}

}  // namespace palimpsest
