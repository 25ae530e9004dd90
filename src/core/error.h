// Errors: the user's mistakes are exceptions with a place and a remedy; our own mistakes are assertions with values.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace palimpsest {

// An `ExitCode` is what the program returns to the shell. `palimpsest --help` documents the values.
enum class ExitCode : int {
    ok = 0,
    run_failed = 1,     // a run failed
    usage = 2,          // bad command line or config; nothing was started
    sweep_partial = 3,  // a sweep finished, but some of its runs failed
    check_failed = 4,   // a result check failed
    requeue = 75,       // stopped for pre-emption; start the same command again
    interrupted = 130,  // SIGINT
    terminated = 143,   // SIGTERM
};

// An `Error` is a mistake that somebody outside this program can mend. It says what was wrong, where, and what would be right.
class Error : public std::runtime_error {
public:
    Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
    ExitCode code() const { return code_; }

private:
    ExitCode code_;
};

template <class... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> text, Args&&... args) {
    throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

// An `InternalError` is our mistake. It is thrown rather than aborting, so that a run's files are closed on the way out.
class InternalError : public std::logic_error {
public:
    using std::logic_error::logic_error;
};

[[noreturn]] inline void assertion_failed(const char* file, int line, const char* condition, const std::string& values) {
    throw InternalError(fmt::format("{}:{}: internal error: {} does not hold; {}", file, line, condition, values));
}

}  // namespace palimpsest

// Throws an InternalError where the condition is false: PALIMPSEST_ASSERT(rows == columns, "rows {}, columns {}", rows, columns).
#define PALIMPSEST_ASSERT(condition, ...)                                                                             \
    do {                                                                                                              \
        if (!(condition)) ::palimpsest::assertion_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
    } while (false)
