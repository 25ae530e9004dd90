#include "sweep/stop.h"

#include "core/log.h"

#include <cstdlib>
#include <initializer_list>
#include <semaphore.h>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>

namespace palimpsest {
namespace {

static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);
std::atomic<StopRequest*> receiver{nullptr};
std::atomic<int> to_close{0};
std::atomic<bool> of_worker{false};
sem_t arrivals;  // one for each signal, for the thread that watches

constexpr std::initializer_list<int> stopping = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

void ask_to_stop(StopRequest& request, int number) {
    int none = 0;
    request.signal.compare_exchange_strong(none, number);
    request.stop.store(true);
}

extern "C" void on_signal(int number) {
    StopRequest* request = receiver.load();
    if (request == nullptr) return;
    const bool at_once =
        of_worker.load() ? number == leave_at_once : request->stop.load() && (number == SIGINT || number == SIGTERM);
    ask_to_stop(*request, number == leave_at_once ? SIGINT : number);
    if (at_once) request->now.store(true);
    sem_post(&arrivals);
}

void handle(std::initializer_list<int> signals, void (*handler)(int)) {
    struct sigaction action = {};
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;  // a write that was interrupted goes on
    for (const int number : signals) {
        struct sigaction before = {};
        sigaction(number, nullptr, &before);
        if (number == SIGHUP && before.sa_handler == SIG_IGN) continue;
        sigaction(number, &action, nullptr);
    }
}

[[noreturn]] void leave(const StopRequest& request, const char* message) {
    log_info("{}", message);
    stop_log();
    std::_Exit(static_cast<int>(request.exit_code()));  // destructors of a process that is in the middle of its work must not run
}

void watch() {
    while (true) {
        while (sem_wait(&arrivals) != 0) {
        }
        const StopRequest& request = *receiver.load();
        if (request.stop.load() && to_close.load() == 0) leave(request, "stopped; there was nothing to close");
        if (!request.now.load()) continue;
        std::this_thread::sleep_for(longest_closing);
        leave(request, "stopped at once; closing took too long");
    }
}

void begin(StopRequest& request, bool is_worker) {
    of_worker.store(is_worker);
    receiver.store(&request);
    static const bool watched = [] {
        sem_init(&arrivals, 0, 0);
        std::thread(&watch).detach();
        return true;
    }();
    static_cast<void>(watched);
    handle(stopping, &on_signal);
    if (is_worker) handle({leave_at_once}, &on_signal);
    handle({SIGXFSZ, SIGPIPE}, SIG_IGN);
}

bool asks_to_requeue(int signal) { return signal != 0 && signal != SIGINT && signal != SIGHUP; }

}  // namespace

ExitCode StopRequest::exit_code() const { return asks_to_requeue(signal.load()) ? ExitCode::requeue : ExitCode::interrupted; }

const char* StopRequest::reason() const { return asks_to_requeue(signal.load()) ? "requeue" : "interrupted"; }

void reset_inherited_signals() {
    handle({SIGCHLD}, SIG_DFL);
    sigset_t mask;
    sigemptyset(&mask);
    for (const int number : stopping) sigaddset(&mask, number);
    for (const int number : {SIGCHLD, SIGPIPE, leave_at_once}) sigaddset(&mask, number);
    pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
}

void handle_signals(StopRequest& request) { begin(request, false); }

NeedsClosing::NeedsClosing() { ++to_close; }
NeedsClosing::~NeedsClosing() { --to_close; }

void handle_signals_of_worker(StopRequest& request, pid_t parent) {
    begin(request, true);
    if (parent == 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ask_to_stop(request, SIGTERM);
}

}  // namespace palimpsest
