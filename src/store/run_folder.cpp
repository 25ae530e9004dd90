#include "store/run_folder.h"

#include "core/error.h"
#include "core/file.h"
#include "store/layout.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <filesystem>
#include <sstream>
#include <thread>
#include <unistd.h>

namespace palimpsest {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t longest_human = 80;

std::string this_host() {
    char name[256] = "";
    if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
    return name;
}

// A process number means something only inside its namespace: two containers may share a host name.
std::string this_pid_namespace() {
    std::error_code error;
    const fs::path link = fs::read_symlink("/proc/self/ns/pid", error);
    return error ? "" : link.string();
}

// When the process started, in clock ticks since boot: tells it from a later process of the same number. "" when it is gone, or dead
// and only waiting for its parent to notice.
std::string start_of_process(std::int64_t pid) {
    std::string stat;
    try {
        stat = read_file(fmt::format("/proc/{}/stat", pid));
    } catch (const Error&) {
        return "";
    }
    // pid (program) state … ; the program's name may hold blanks and parentheses. The start is field 22, the state field 3.
    const std::size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos) return "";
    std::istringstream fields(stat.substr(name_end + 1));
    std::string field, state;
    fields >> state;
    for (int number = 4; number <= 22; ++number) fields >> field;
    return state == "Z" || state == "X" ? "" : field;
}

struct Lock {
    std::string host, pid_namespace, process_start, token;
    std::int64_t pid = 0, created = 0, heartbeat = 0;  // times in seconds since 1970

    std::string text() const {
        const Json json = {{"host", host},   {"pid", pid},         {"pid_namespace", pid_namespace}, {"process_start", process_start},
                           {"token", token}, {"created", created}, {"heartbeat", heartbeat}};
        return json.dump(2) + "\n";
    }

    std::string holder() const { return pid == 0 ? "an unreadable LOCK" : fmt::format("pid {} on host {}", pid, host); }

    bool alive() const {
        if (host == this_host() && pid_namespace == this_pid_namespace()) {
            const std::string start = start_of_process(pid);
            return !start.empty() && start == process_start;
        }
        return std::time(nullptr) - heartbeat < RunFolder::stale_after.count();
    }
};

Lock new_lock() {
    static std::atomic<unsigned> count{0};
    Lock lock;
    lock.host = this_host();
    lock.pid_namespace = this_pid_namespace();
    lock.pid = ::getpid();
    lock.process_start = start_of_process(lock.pid);
    lock.created = lock.heartbeat = std::time(nullptr);
    lock.token = fmt::format("{}-{}-{}-{}", lock.host, lock.pid, lock.process_start, count++);
    return lock;
}

// Nothing when there is no LOCK. One that cannot be understood (a disk failed, somebody edited it) counts as dead.
std::optional<Lock> read_lock(const std::string& path) {
    std::string text;
    try {
        text = read_file(path);
    } catch (const Error&) {
        if (!file_exists(path)) return std::nullopt;
        throw;
    }
    Lock lock;
    try {
        const Json json = Json::parse(text);
        lock.host = json.at("host");
        lock.pid = json.at("pid");
        lock.pid_namespace = json.at("pid_namespace");
        lock.process_start = json.at("process_start");
        lock.token = json.at("token");
        lock.created = json.at("created");
        lock.heartbeat = json.at("heartbeat");
    } catch (const Json::exception&) {
        return Lock{};
    }
    return lock;
}

}  // namespace

const char* to_string(RunState state) { return state_names[static_cast<std::size_t>(state)].data(); }

RunFolder::RunFolder(std::string path) : path_(std::move(path)) {}

std::string RunFolder::file(const std::string& name) const { return path_ + "/" + name; }

RunState RunFolder::state() const {
    if (file_exists(file("DONE"))) return RunState::finished;
    const std::optional<Lock> lock = read_lock(file("LOCK"));
    if (lock && lock->alive()) return RunState::running;
    if (const std::optional<RunFailure> failed = failure()) {
        return failed->reason == "interrupted" || failed->reason == "requeue" ? RunState::interrupted : RunState::failed;
    }
    return lock || file_exists(file("run.h5")) ? RunState::lost : RunState::fresh;
}

std::optional<RunFailure> RunFolder::failure() const {
    if (!file_exists(file("FAILED.json"))) return std::nullopt;
    RunFailure failure;
    try {
        const Json json = Json::parse(read_file(file("FAILED.json")));
        failure.reason = json.at("reason");
        failure.message = json.at("message");
        failure.step = json.at("step");
    } catch (const Json::exception& error) {
        failure = {"error", fmt::format("'{}' cannot be understood: {}", file("FAILED.json"), error.what()), -1};
    }
    return failure;
}

std::string RunFolder::holder() const {
    const std::optional<Lock> lock = read_lock(file("LOCK"));
    return lock ? lock->holder() : "";
}

// A dead lock may be found by several at once. Each lock has a token of its own, and who creates the claim on a dead token, exclusively,
// may replace that lock: LOCK is never absent meanwhile, so nobody slips in. Claimants can die too: then their token is claimed in turn.
// A claim is good only while LOCK still is the one that was found dead: it may have been replaced, and its claims removed, before ours.
bool RunFolder::take_over(const std::string& dead, const std::string& mine, std::string& rival) {
    const std::string path = file("LOCK");
    std::vector<std::string> claims;
    for (std::string token = dead;;) {
        claims.push_back(fmt::format("{}.tmp-claim-{}", path, token));
        if (create_file(claims.back(), mine)) break;
        const std::optional<Lock> claimant = read_lock(claims.back());
        if (!claimant) return false;
        if (claimant->alive()) {
            rival = claimant->holder();
            return false;
        }
        token = claimant->token;
    }
    const std::optional<Lock> now = read_lock(path);
    const bool still_dead = now && now->token == dead;
    if (still_dead) write_file_atomic(path, mine);
    else claims = {claims.back()};
    for (const std::string& claim : claims) remove_file(claim);
    return still_dead;
}

void RunFolder::lock() {
    const std::string path = file("LOCK");
    const Lock mine = new_lock();
    // Each round takes the lock, finds it held, or sees it change hands.
    for (int round = 0; round < 100; ++round) {
        std::string rival;
        bool taken = create_file(path, mine.text());
        if (!taken) {
            const std::optional<Lock> found = read_lock(path);
            // Where a name is taken by an empty file first, its holder may be about to fill it.
            const bool being_written = found && found->pid == 0 && round < 50;
            if (being_written) std::this_thread::sleep_for(std::chrono::milliseconds(10));
            if (!found || being_written) continue;
            if (found->alive()) rival = found->holder();
            else taken = take_over(found->token, mine.text(), rival);
        }
        if (!rival.empty()) fail(ExitCode::usage, "already running ({}): '{}'", rival, path_);
        if (taken) {
            token_ = mine.token;
            last_heartbeat_ = std::chrono::steady_clock::now();
            return;
        }
    }
    fail(ExitCode::run_failed, "cannot lock '{}': others keep taking it", path_);
}

void RunFolder::heartbeat(std::chrono::seconds interval) {
    if (token_.empty()) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_heartbeat_ < interval) return;
    std::optional<Lock> lock = read_lock(file("LOCK"));
    if (!lock || lock->token != token_) {
        fail(ExitCode::run_failed, "'{}': the lock was taken over by {}; this process stops", path_, lock ? lock->holder() : "nobody known");
    }
    lock->heartbeat = std::time(nullptr);
    write_file_atomic(file("LOCK"), lock->text());
    last_heartbeat_ = now;
}

void RunFolder::unlock() {
    if (token_.empty()) return;
    const std::optional<Lock> lock = read_lock(file("LOCK"));
    if (lock && lock->token == token_) remove_file(file("LOCK"));
    token_.clear();
}

void RunFolder::write_done() {
    write_file_atomic(file("DONE"), fmt::format("finished {}\n", utc_now()));
    clear_failed();
}

void RunFolder::write_failed(const RunFailure& failure) {
    const Json json = {{"reason", failure.reason}, {"message", failure.message}, {"step", failure.step}, {"time", utc_now()}};
    // A message may quote bytes that are no UTF-8.
    write_file_atomic(file("FAILED.json"), json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void RunFolder::clear_failed() { remove_file(file("FAILED.json")); }

std::string run_folder_name(const std::string& run_id, const std::string& human) {
    std::string name = run_id;
    if (human.empty()) return name;
    name += '-';
    for (const char c : human.substr(0, longest_human)) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '=' || c == '+';
        name += plain ? c : c == '-' ? '-' : '_';
    }
    return name;
}

}  // namespace palimpsest
