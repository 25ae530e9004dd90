#include "sweep/worker.h"

#include "core/error.h"

#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace palimpsest {
namespace {

using Json = nlohmann::json;

constexpr std::pair<const char*, double Progress::*> measured[] = {{"loss", &Progress::loss},
                                                                   {"accuracy", &Progress::accuracy},
                                                                   {"gradient_norm", &Progress::gradient_norm},
                                                                   {"lr", &Progress::lr},
                                                                   {"seconds_per_step", &Progress::seconds_per_step},
                                                                   {"tokens_per_second", &Progress::tokens_per_second}};

[[noreturn]] void cannot_start(int error) { fail(ExitCode::run_failed, "cannot start a worker: {}", std::strerror(error)); }

// A file in memory that holds `text`.
void hold(Descriptor& file, const std::string& text) {
    file.value = ::memfd_create("plan", MFD_CLOEXEC);
    if (file.value < 0) cannot_start(errno);
    for (std::size_t done = 0; done < text.size();) {
        const ssize_t written = ::write(file.value, text.data() + done, text.size() - done);
        if (written < 0 && errno != EINTR) cannot_start(errno);
        if (written > 0) done += static_cast<std::size_t>(written);
    }
    ::lseek(file.value, 0, SEEK_SET);
}

void open_pipe(Descriptor& from, Descriptor& to) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) cannot_start(errno);
    from.value = ends[0];
    to.value = ends[1];
    ::fcntl(from.value, F_SETFL, O_NONBLOCK);
}

}  // namespace

std::string progress_record(const Progress& progress) {
    Json json = {{"step", progress.step}, {"steps", progress.steps}};
    for (const auto& [name, member] : measured) json[name] = progress.*member;
    return json.dump() + "\n";
}

std::string taken_record(const std::string& run_id) { return Json{{"taken", run_id}}.dump() + "\n"; }

Told read_record(const std::string& line) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object()) return {};
    try {
        if (json.contains("taken")) return {std::nullopt, json["taken"].get<std::string>()};
        Progress progress;
        progress.step = json.at("step");
        progress.steps = json.at("steps");
        for (const auto& [name, member] : measured) {  // JSON has no NaN: it is written as null
            const Json& value = json.at(name);
            progress.*member = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
        }
        return {progress, std::nullopt};
    } catch (const Json::exception&) {
        return {};
    }
}

void Descriptor::close() {
    if (value >= 0) ::close(value);
    value = -1;
}

Worker::Worker(const WorkOrder& order) {
    Descriptor plan, out_end, err_end;
    hold(plan, order.manifest);
    open_pipe(out_.from, out_end);
    open_pipe(err_.from, err_end);

    std::vector<std::string> words = {"palimpsest", "work", order.folder};
    words.insert(words.end(), order.run_ids.begin(), order.run_ids.end());
    for (const std::string& word : {std::string("--plan"), std::string("/dev/stdin"), fmt::format("--workers={}", order.workers),
                                    fmt::format("--threads={}", order.threads), fmt::format("--parent={}", ::getpid())})
        words.push_back(word);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, plan.value, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out_end.value, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err_end.value, STDERR_FILENO);
    const int error = ::posix_spawn(&pid_, order.program.c_str(), &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) cannot_start(error);
}

Worker::~Worker() {
    if (ended_) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

void Worker::signal(int number) const {
    if (!ended_) ::kill(pid_, number);
}

void Worker::add_to(std::vector<pollfd>& wanted) const {
    for (const Pipe* pipe : {&out_, &err_})
        if (pipe->from.value >= 0) wanted.push_back({pipe->from.value, POLLIN, 0});
}

void Worker::Pipe::drain(const std::function<void(const std::string&)>& on_line, bool to_the_end) {
    std::array<char, 1 << 14> buffer;
    while (from.value >= 0) {
        const ssize_t size = ::read(from.value, buffer.data(), buffer.size());
        if (size < 0 && errno == EINTR) continue;
        if (size < 0 && errno == EAGAIN) break;
        if (size <= 0) from.close();
        else rest.append(buffer.data(), static_cast<std::size_t>(size));
    }
    std::size_t begin = 0;
    for (std::size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n', begin)) {
        on_line(rest.substr(begin, end - begin));
        begin = end + 1;
    }
    rest.erase(0, begin);
    if (to_the_end && !rest.empty()) on_line(std::exchange(rest, ""));
}

bool Worker::receive(const std::function<void(const std::string&)>& on_message) {
    // First whether it has ended, then what it has said: so nothing that came before its end is missed.
    if (!ended_) {
        int status = 0;
        const pid_t found = ::waitpid(pid_, &status, WNOHANG);
        if (found == pid_) status_ = status;
        ended_ = found == pid_ || (found < 0 && errno == ECHILD);
    }
    err_.drain(
        [&](const std::string& line) {
            last_message_ = line;
            on_message(line);
        },
        ended_);
    out_.drain(
        [&](const std::string& line) {
            const Told told = read_record(line);
            if (told.progress) progress = told.progress;
            else if (told.taken) taken.insert(*told.taken);
            else on_message(line);
        },
        ended_);
    return ended_;
}

std::string Worker::last_words() const {
    std::string said = last_message_.starts_with("error: ") ? last_message_.substr(7) : last_message_;
    if (status_ && WIFSIGNALED(*status_)) {
        const int number = WTERMSIG(*status_);
        const char* name = ::sigabbrev_np(number);
        std::string text = fmt::format("killed by signal {} (SIG{})", number, name ? name : "?");
        if (number == SIGKILL) text += ", as is done when memory runs out";
        else if (!said.empty()) text += "; its last words: " + said;
        return text;
    }
    if (!said.empty()) return said;
    return status_ ? fmt::format("its worker left with code {}", WEXITSTATUS(*status_)) : "its worker is gone";
}

}  // namespace palimpsest
