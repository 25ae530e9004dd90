#include "store/run_folder.h"

#include "core/error.h"
#include "core/file.h"
#include "core/time.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace palimpsest {
namespace {

using Json = nlohmann::json;

constexpr std::size_t longest_human = 80;

}  // namespace

RunFolder::RunFolder(std::string path) : path_(std::move(path)) {}

std::string RunFolder::file(const std::string& name) const { return path_ + "/" + name; }

RunState RunFolder::state() const {
    const bool done = file_exists(file("DONE"));
    if (done && lost_record().empty()) return RunState::finished;
    const std::optional<LockText> lock = read_lock(file("LOCK"));
    if (lock && lock->alive()) return RunState::running;
    if (done) return RunState::lost;
    if (const std::optional<RunFailure> failed = failure()) {
        return failed->reason == "interrupted" || failed->reason == "requeue" ? RunState::interrupted : RunState::failed;
    }
    return lock || file_exists(file("run.h5")) ? RunState::lost : RunState::fresh;
}

std::string RunFolder::lost_record(RunParts looked_at) const {
    const std::string record = file("run.h5");
    const bool done = file_exists(file("DONE"));
    if (!file_exists(record)) {
        const bool expected = done || (folder_exists(file("checkpoints")) && !list_files(file("checkpoints")).empty());
        return expected ? fmt::format("'{}' is missing", record) : "";
    }
    try {
        const std::string status = read_run(record, looked_at).status;
        return done && status != to_string(RunState::finished) ? fmt::format("'{}' stands beside DONE, but is not finished", record)
                                                               : "";
    } catch (const DamagedRun& error) {
        return error.what();
    } catch (const Error&) {
        return "";
    }
}

std::optional<RunFailure> RunFolder::failure() const {
    const std::string path = file("FAILED.json");
    if (!file_exists(path)) return std::nullopt;
    try {
        const Json json = Json::parse(read_file(path));
        return RunFailure{json.at("reason"), json.at("message"), json.at("step")};
    } catch (const Json::exception& error) {
        return RunFailure{"error", fmt::format("'{}' cannot be understood: {}", path, error.what())};
    }
}

std::string RunFolder::holder() const {
    const std::optional<LockText> lock = read_lock(file("LOCK"));
    return lock ? lock->holder() : "";
}

void RunFolder::lock() { lock_ = std::make_unique<RunLock>(path_); }

void RunFolder::heartbeat(std::chrono::steady_clock::duration interval) {
    if (lock_) lock_->heartbeat(interval);
}

void RunFolder::unlock() {
    if (lock_) lock_->release();
}

void RunFolder::write_done() {
    write_file_atomic(file("DONE"), fmt::format("finished {}\n", now_utc()));
    remove_file(file("FAILED.json"));
}

void RunFolder::write_failed(const RunFailure& failure) {
    const Json json = {{"reason", failure.reason}, {"message", failure.message}, {"step", failure.step}, {"time", now_utc()}};
    // A message may quote bytes that are no UTF-8.
    write_file_atomic(file("FAILED.json"), json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void RunFolder::clear_end() {
    remove_file(file("DONE"));
    remove_file(file("FAILED.json"));
}

std::string run_folder_name(const std::string& run_id, const std::string& human) {
    std::string name = run_id;
    if (human.empty()) return name;
    name += '-';
    for (const char c : human.substr(0, longest_human)) {
        const bool plain =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '=' || c == '+';
        name += plain ? c : c == '-' ? '-' : '_';
    }
    return name;
}

}  // namespace palimpsest
