// Messages for people, on stderr and in the log of each run. The library prints nothing before start_log. One live line at the
// bottom of a terminal shares the messages' lock, so that neither tears the other.
#pragma once

#include "core/error.h"

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace palimpsest {

enum class LogLevel { debug, info, warning, error };

// A `Terminal` tells what may be sent to a terminal besides plain lines.
struct Terminal {
    bool live = false;  // a line may be redrawn (carriage return, erase)
    bool colour = false;
    int width = 80;
};
// Derives the terminal from whether it is a TTY and from TERM, CI and NO_COLOR (null or empty = not set).
Terminal terminal_of(bool tty, const char* term, const char* ci, const char* no_color);
Terminal stderr_terminal();

void start_log(LogLevel least, Terminal terminal, std::FILE* stream = stderr);
void stop_log();  // erases a live line; the library prints nothing afterwards

void log_message(LogLevel level, const std::string& message);  // to the stream and to every open RunLog

template <class... Args>
void log_debug(fmt::format_string<Args...> text, Args&&... args) {
    log_message(LogLevel::debug, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
    log_message(LogLevel::info, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> text, Args&&... args) {
    log_message(LogLevel::warning, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> text, Args&&... args) {
    log_message(LogLevel::error, fmt::format(text, std::forward<Args>(args)...));
}

// Returns the columns of the live line, or 0 where lines cannot be redrawn.
std::size_t live_width();
// Redraws the live line, cut to its columns. Returns false, and writes nothing, where lines cannot be redrawn.
bool show_live_line(std::string_view text);
void erase_live_line();

// A `RunLog` is a run's run.log. While it is open, messages go there too, stamped in UTC. Each line is flushed: `tail -f` follows.
class RunLog {
public:
    explicit RunLog(const std::string& path);
    ~RunLog();
    RunLog(const RunLog&) = delete;
    RunLog& operator=(const RunLog&) = delete;
    void line(const std::string& message);  // writes into this file only

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace palimpsest
