#include "sweep/stop.h"

#include <initializer_list>
#include <sys/prctl.h>
#include <unistd.h>

namespace palimpsest {
namespace {

static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);
std::atomic<StopRequest*> receiver{nullptr};

void ask_to_stop(StopRequest& request, int number) {
    int none = 0;
    request.signal.compare_exchange_strong(none, number);
    request.stop.store(true);
}

extern "C" void on_signal_of_worker(int number) {
    StopRequest* request = receiver.load();
    if (request == nullptr) return;
    if (number == leave_at_once) {
        ask_to_stop(*request, SIGINT);
        request->now.store(true);
    } else {
        ask_to_stop(*request, number);
    }
}

extern "C" void on_signal(int number) {
    StopRequest* request = receiver.load();
    if (request == nullptr) return;
    if (request->stop.load()) {
        request->now.store(true);
        return;
    }
    ask_to_stop(*request, number);
}

void handle(std::initializer_list<int> signals, void (*handler)(int)) {
    struct sigaction action = {};
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;  // a write that was interrupted goes on
    for (const int number : signals) sigaction(number, &action, nullptr);
}

bool asks_to_requeue(int signal) { return signal == SIGTERM || signal == SIGUSR2; }

}  // namespace

ExitCode StopRequest::exit_code() const { return asks_to_requeue(signal.load()) ? ExitCode::requeue : ExitCode::interrupted; }

const char* StopRequest::reason() const { return asks_to_requeue(signal.load()) ? "requeue" : "interrupted"; }

void handle_signals(StopRequest& request) {
    receiver.store(&request);
    handle({SIGINT, SIGTERM, SIGUSR2}, &on_signal);
    handle({SIGXFSZ}, SIG_IGN);
}

void handle_signals_of_worker(StopRequest& request, pid_t parent) {
    receiver.store(&request);
    handle({SIGINT, SIGTERM, SIGUSR2, leave_at_once}, &on_signal_of_worker);
    handle({SIGXFSZ, SIGPIPE}, SIG_IGN);
    if (parent == 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ask_to_stop(request, SIGTERM);
}

}  // namespace palimpsest
