#include "sweep/stop.h"

#include <chrono>
#include <functional>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "catch.h"

using namespace palimpsest;

namespace {

// What waitpid tells of a process of its own, which `work` leaves with its result: signals, and the thread that watches them, are
// of a whole process.
int status_of(const std::function<int()>& work) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(work());
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return status;
}

int code_of(const std::function<int()>& work) {
    const int status = status_of(work);
    CAPTURE(status);
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
}

void wait_to_be_ended() { std::this_thread::sleep_for(std::chrono::seconds(5)); }

}  // namespace

TEST_CASE("what each signal asks for") {
    struct Expected {
        int first, second;
        bool now;
        ExitCode code;
        const char* reason;
    };
    // A person who asks twice wants to leave at once; a system may send one wish twice, or by two names.
    for (const Expected& expected : {Expected{SIGINT, SIGINT, true, ExitCode::interrupted, "interrupted"},
                                     {SIGINT, SIGTERM, true, ExitCode::interrupted, "interrupted"},
                                     {SIGTERM, SIGINT, true, ExitCode::requeue, "requeue"},
                                     {SIGTERM, SIGHUP, false, ExitCode::requeue, "requeue"},
                                     {SIGHUP, SIGHUP, false, ExitCode::interrupted, "interrupted"},
                                     {SIGUSR1, SIGUSR1, false, ExitCode::requeue, "requeue"},
                                     {SIGUSR2, SIGUSR1, false, ExitCode::requeue, "requeue"},
                                     {SIGXCPU, SIGXCPU, false, ExitCode::requeue, "requeue"},
                                     {SIGUSR1, SIGTERM, true, ExitCode::requeue, "requeue"}}) {
        INFO(expected.first << " then " << expected.second);
        CHECK(code_of([&] {
                  StopRequest request;
                  const NeedsClosing closing;
                  handle_signals(request);
                  std::raise(expected.first);
                  const bool first = request.stop && !request.now && request.exit_code() == expected.code;
                  std::raise(expected.second);
                  const bool second = request.now == expected.now && request.exit_code() == expected.code &&
                                      std::string(request.reason()) == expected.reason;
                  return first && second ? 0 : 1;
              }) == 0);
    }
}

TEST_CASE("a worker leaves at once at its parent's word alone") {
    CHECK(code_of([] {
              StopRequest request;
              const NeedsClosing closing;
              handle_signals_of_worker(request, 0);
              for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) std::raise(number);
              const bool asked = request.stop && !request.now;
              std::raise(leave_at_once);
              return asked && request.now && request.exit_code() == ExitCode::requeue ? 0 : 1;
          }) == 0);
    // A parent that is gone has asked to stop.
    CHECK(code_of([] {
              StopRequest request;
              handle_signals_of_worker(request, 1 << 30);
              return request.stop && request.exit_code() == ExitCode::requeue ? 0 : 1;
          }) == 0);
}

TEST_CASE("a signal ends the process while there is nothing to close, whatever it is at") {
    for (const auto& [number, code] : {std::pair{SIGINT, 130}, {SIGHUP, 130}, {SIGTERM, 75}, {SIGUSR1, 75}}) {
        CHECK(code_of([signal_number = number] {
                  StopRequest request;
                  handle_signals(request);
                  std::raise(signal_number);
                  wait_to_be_ended();
                  return 1;
              }) == code);
    }
}

TEST_CASE("what ends a reader or a terminal does not end a run") {
    CHECK(code_of([] {
              StopRequest request;
              const NeedsClosing closing;
              handle_signals(request);
              int ends[2];
              if (::pipe(ends) != 0) return 2;
              ::close(ends[0]);
              return ::write(ends[1], "x", 1) == -1 && errno == EPIPE && !request.stop ? 0 : 1;
          }) == 0);
    // As nohup leaves it.
    CHECK(code_of([] {
              std::signal(SIGHUP, SIG_IGN);
              StopRequest request;
              handle_signals(request);
              std::raise(SIGHUP);
              return request.stop ? 1 : 0;
          }) == 0);
}

TEST_CASE("what the parent has ignored or blocked is put right") {
    CHECK(code_of([] {
              std::signal(SIGCHLD, SIG_IGN);  // with it no child can be waited for
              sigset_t all;
              sigfillset(&all);
              pthread_sigmask(SIG_BLOCK, &all, nullptr);
              reset_inherited_signals();
              StopRequest request;
              const NeedsClosing closing;
              handle_signals(request);
              const pid_t child = ::fork();
              if (child == 0) ::_exit(7);
              int status = 0;
              if (::waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7) return 2;
              std::raise(SIGTERM);
              return request.stop ? 0 : 1;
          }) == 0);
}
