// Where runs are: every run's folder below a folder, through symbolic links too, each once.
#include "core/error.h"
#include "core/file.h"
#include "store/run_folder.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <iterator>
#include <set>

namespace palimpsest {
namespace {

namespace fs = std::filesystem;

// Files of which every run has one at least, from its first moment on.
constexpr const char* marks[] = {"run.h5", "LOCK", "DONE", "FAILED.json"};

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

bool is_run_folder(const std::string& folder) {
    return std::any_of(std::begin(marks), std::end(marks), [&](const char* file) { return file_exists(folder + "/" + file); });
}

std::vector<std::string> find_run_folders(const std::string& root) {
    if (!folder_exists(root)) fail(ExitCode::usage, "no such folder: '{}'", root);
    return Search(root).found();
}

}  // namespace palimpsest
