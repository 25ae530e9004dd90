#include "sweep/stop.h"

#include <csignal>

namespace palimpsest {
namespace {

static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);
std::atomic<StopRequest*> receiver{nullptr};

extern "C" void on_signal(int number) {
    StopRequest* request = receiver.load();
    if (request == nullptr) return;
    if (request->stop.load()) {
        request->now.store(true);
        return;
    }
    request->signal.store(number);
    request->stop.store(true);
}

bool asks_to_requeue(int signal) { return signal == SIGTERM || signal == SIGUSR2; }

}  // namespace

ExitCode StopRequest::exit_code() const { return asks_to_requeue(signal.load()) ? ExitCode::requeue : ExitCode::interrupted; }

const char* StopRequest::reason() const { return asks_to_requeue(signal.load()) ? "requeue" : "interrupted"; }

void handle_signals(StopRequest& request) {
    receiver.store(&request);
    struct sigaction action = {};
    action.sa_handler = &on_signal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;  // a write that was interrupted goes on
    for (const int number : {SIGINT, SIGTERM, SIGUSR2}) sigaction(number, &action, nullptr);
}

}  // namespace palimpsest
