#include "core/log.h"

#include "core/text.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/dist_sink.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <sys/ioctl.h>
#include <unistd.h>

namespace palimpsest {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
    switch (level) {
        case LogLevel::debug: return spdlog::level::debug;
        case LogLevel::info: return spdlog::level::info;
        case LogLevel::warning: return spdlog::level::warn;
        case LogLevel::error: return spdlog::level::err;
    }
    return spdlog::level::info;
}

// Returns at most `width` code points of the text.
std::string_view cut(std::string_view text, std::size_t width) {
    std::size_t end = 0, used = 0;
    while (end < text.size()) {
        const bool starts = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
        if (starts && used++ == width) break;
        ++end;
    }
    return text.substr(0, end);
}

class ConsoleSink final : public spdlog::sinks::base_sink<std::mutex> {
public:
    ConsoleSink(Terminal terminal, std::FILE* stream) : terminal_(terminal), stream_(stream) {}

    // Returns one column less than the terminal has, because some terminals begin a new line once the last column is written.
    std::size_t width() const { return terminal_.live ? static_cast<std::size_t>(std::max(terminal_.width - 1, 1)) : 0; }

    bool show(std::string_view text) {
        if (!terminal_.live) return false;
        const std::lock_guard<std::mutex> lock(mutex_);
        live_ = cut(text, width());
        draw();
        return true;
    }

    void erase() {
        const std::lock_guard<std::mutex> lock(mutex_);
        wipe();
        live_.clear();
        std::fflush(stream_);
    }

private:
    void sink_it_(const spdlog::details::log_msg& message) override {
        wipe();
        const bool error = message.level >= spdlog::level::err, warning = message.level == spdlog::level::warn;
        if (error || warning) {
            const char* word = error ? "error:" : "warning:";
            if (terminal_.colour) {
                std::fprintf(stream_, "\x1b[%sm%s\x1b[0m ", error ? "31;1" : "33;1", word);
            } else {
                std::fprintf(stream_, "%s ", word);
            }
        }
        std::fwrite(message.payload.data(), 1, message.payload.size(), stream_);
        std::fputc('\n', stream_);
        if (!live_.empty()) draw();
        std::fflush(stream_);
    }
    void flush_() override { std::fflush(stream_); }

    void draw() {
        std::fprintf(stream_, "\r%s\x1b[K", live_.c_str());
        std::fflush(stream_);
    }
    void wipe() {
        if (!live_.empty()) std::fputs("\r\x1b[K", stream_);
    }

    Terminal terminal_;
    std::FILE* stream_;
    std::string live_;
};

// The console and the run logs share one logger. The run logs outlive a restart of the console.
struct Logs {
    std::shared_ptr<spdlog::sinks::dist_sink_mt> sinks = std::make_shared<spdlog::sinks::dist_sink_mt>();
    std::shared_ptr<ConsoleSink> console;
    spdlog::logger logger{"palimpsest", sinks};
    std::mutex console_lock;

    Logs() { logger.set_level(spdlog::level::debug); }
    std::shared_ptr<ConsoleSink> current() {
        const std::lock_guard<std::mutex> lock(console_lock);
        return console;
    }
    void replace(std::shared_ptr<ConsoleSink> next) {
        const std::lock_guard<std::mutex> lock(console_lock);
        if (console) {
            console->erase();
            sinks->remove_sink(console);
        }
        console = std::move(next);
        if (console) sinks->add_sink(console);
    }
};

Logs& logs() {
    static Logs instance;
    return instance;
}

bool set(const char* variable) { return variable != nullptr && *variable != '\0'; }

}  // namespace

Terminal terminal_of(bool tty, const char* term, const char* ci, const char* no_color) {
    Terminal terminal;
    terminal.live = tty && !set(ci) && set(term) && std::string_view(term) != "dumb";
    terminal.colour = terminal.live && !set(no_color);
    return terminal;
}

Terminal stderr_terminal() {
    const bool tty = ::isatty(STDERR_FILENO) == 1;
    Terminal terminal = terminal_of(tty, std::getenv("TERM"), std::getenv("CI"), std::getenv("NO_COLOR"));
    winsize size{};
    if (tty && ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) terminal.width = size.ws_col;
    return terminal;
}

void start_log(LogLevel least, Terminal terminal, std::FILE* stream) {
    auto console = std::make_shared<ConsoleSink>(terminal, stream);
    console->set_level(spdlog_level(least));
    logs().replace(std::move(console));
}

void stop_log() { logs().replace(nullptr); }

void log_message(LogLevel level, const std::string& message) { logs().logger.log(spdlog_level(level), message); }

std::size_t live_width() {
    const auto console = logs().current();
    return console ? console->width() : 0;
}

bool show_live_line(std::string_view text) {
    const auto console = logs().current();
    return console && console->show(text);
}

void erase_live_line() {
    if (const auto console = logs().current()) console->erase();
}

struct RunLog::Impl {
    std::shared_ptr<spdlog::sinks::basic_file_sink_mt> file;
    std::unique_ptr<spdlog::logger> logger;
};

RunLog::RunLog(const std::string& path) : impl_(std::make_unique<Impl>()) {
    try {
        impl_->file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, false);
    } catch (const spdlog::spdlog_ex& error) {
        fail(ExitCode::run_failed, "cannot write the log: {}", error.what());
    }
    impl_->file->set_formatter(
        std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%SZ %l: %v", spdlog::pattern_time_type::utc));
    impl_->logger = std::make_unique<spdlog::logger>("run", impl_->file);
    impl_->logger->flush_on(spdlog::level::trace);
    logs().sinks->add_sink(impl_->file);
    logs().logger.flush_on(spdlog::level::trace);
}

RunLog::~RunLog() { logs().sinks->remove_sink(impl_->file); }

void RunLog::line(const std::string& message) { impl_->logger->info(message); }

}  // namespace palimpsest
