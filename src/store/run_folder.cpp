#include "store/run_folder.h"

#include "core/error.h"
#include "core/file.h"
#include "core/time.h"
#include "store/run_lock.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <iterator>
#include <set>

namespace palimpsest {
namespace {

using Json = nlohmann::json;

namespace fs = std::filesystem;

constexpr std::size_t longest_human = 80;

// Files of which every run has one at least, from its first moment on.
constexpr const char* marks[] = {"run.h5", "LOCK", "DONE", "FAILED.json"};

// Every run's folder below a folder, through symbolic links too, each once.
class Search {
public:
    explicit Search(const std::string& root) {
        walk(root, fs::canonical(root), true);
        // Links come last, so that a run keeps the name of its real place where that is below the root too.
        for (; !links_.empty(); links_.pop_front()) follow(links_.front());
        std::sort(found_.begin(), found_.end());
    }

    std::vector<std::string> found() && { return std::move(found_); }

private:
    // `path` is what the user sees, `real` the place behind all links.
    void walk(const fs::path& path, const fs::path& real, bool is_root = false) {
        if (!visited_.insert(real).second) return;
        std::vector<fs::path> folders, links;
        std::error_code error;
        bool is_run = false;
        for (fs::directory_iterator entry(path, fs::directory_options::skip_permission_denied, error), end; !error && entry != end;
             entry.increment(error)) {
            std::error_code vanished;
            const fs::path name = entry->path().filename();
            is_run = is_run || std::find(std::begin(marks), std::end(marks), name) != std::end(marks);
            if (entry->is_symlink(vanished)) links.push_back(entry->path());
            else if (entry->is_directory(vanished)) folders.push_back(name);
        }
        std::sort(links.begin(), links.end());  // of two links to one place the first counts
        links_.insert(links_.end(), links.begin(), links.end());
        if (is_run) found_.push_back(path.string());
        if (is_run && !is_root) return;  // checkpoints are no runs
        for (const fs::path& name : folders) walk(path / name, real / name);
    }

    // A link to a folder that it stands in leads round in a circle, and up: out of what was asked for.
    void follow(const fs::path& link) {
        std::error_code error;
        const fs::path real = fs::canonical(link, error);
        if (error || !fs::is_directory(real, error)) return;
        const fs::path place = fs::canonical(link.parent_path(), error);
        const auto [left, unused] = std::mismatch(real.begin(), real.end(), place.begin(), place.end());
        if (!error && left != real.end()) walk(link, real);
    }

    std::set<fs::path> visited_;
    std::deque<fs::path> links_;
    std::vector<std::string> found_;
};

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

bool is_run_folder(const std::string& folder) {
    return std::any_of(std::begin(marks), std::end(marks), [&](const char* file) { return file_exists(folder + "/" + file); });
}

std::vector<std::string> find_run_folders(const std::string& root) {
    if (!folder_exists(root)) fail(ExitCode::usage, "no such folder: '{}'", root);
    return Search(root).found();
}

}  // namespace palimpsest
