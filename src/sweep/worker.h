// A worker: this program once more, as a child process that trains one pack and tells its parent how it goes. A crash costs its
// pack, no more. The plan reaches it as a manifest in memory, so that no file that somebody edits meanwhile changes it.
#pragma once

#include "train/trainer.h"

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

struct pollfd;

namespace palimpsest {

// What a worker tells its parent on stdout, one JSON object a line: its progress, or the id of a run whose folder it has taken.
// Messages for people go to stderr, and what became of a run stands in its folder.
std::string progress_record(const Progress& progress);
std::string taken_record(const std::string& run_id);
struct Told {
    std::optional<Progress> progress;
    std::optional<std::string> taken;
};
Told read_record(const std::string& line);  // has neither where the line is no such record

struct WorkOrder {
    std::string program = "/proc/self/exe";  // the file that runs now, even if it was built anew meanwhile
    std::string manifest;                    // text, with the runs of this pack
    std::string folder;                      // of the sweep
    std::vector<std::string> run_ids;
    std::int64_t workers = 1, threads = 0;  // threads: 0: as the config says
};

// Closes on the way out.
struct Descriptor {
    int value = -1;
    Descriptor() = default;
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() { close(); }
    void close();
};

class Worker {
public:
    explicit Worker(const WorkOrder& order);  // Error(run_failed) where no process can be started
    ~Worker();                                // kills it, if it still lives
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    void signal(int number) const;
    void add_to(std::vector<pollfd>& wanted) const;  // its open pipes
    // Takes what has come, without waiting. Each line of stderr is handed on. True when the process has ended; then all has come.
    bool receive(const std::function<void(const std::string&)>& on_message);

    std::optional<Progress> progress;  // the newest
    std::set<std::string> taken;       // ids of the runs whose folders it has locked
    // How it ended, for the runs whose outcome it did not live to tell: "killed by signal 9 (SIGKILL)…", or its last words.
    std::string last_words() const;

private:
    struct Pipe {
        Descriptor from;
        std::string rest;  // of a line that has not ended
        void drain(const std::function<void(const std::string&)>& on_line, bool to_the_end);
    };

    pid_t pid_ = -1;
    std::optional<int> status_;  // as waitpid tells it; nothing where somebody else has asked for it
    bool ended_ = false;
    Pipe out_, err_;
    std::string last_message_;
};

}  // namespace palimpsest
