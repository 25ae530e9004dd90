#include "sweep/attendant.h"

#include "core/log.h"

#include <condition_variable>
#include <cstdlib>
#include <future>
#include <mutex>

namespace palimpsest {

using namespace std::chrono_literals;

Attendant::Attendant(std::vector<RunSession*> sessions, const StopRequest& request)
    : sessions_(std::move(sessions)), request_(request), thread_([this](const std::stop_token& done) { work(done); }) {}

void Attendant::work(const std::stop_token& done) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any wake;
    const auto is_done = [&] { return done.stop_requested(); };
    while (!wake.wait_for(lock, done, 50ms, is_done)) {
        if (request_.now.load()) leave();
        for (RunSession* session : sessions_) session->heartbeat();
    }
}

void Attendant::leave() {
    erase_live_line();
    const auto deadline = std::chrono::steady_clock::now() + time_to_close;
    std::vector<std::function<void()>> closings;
    for (RunSession* session : sessions_) closings.push_back([this, session, deadline] { session->close_now(request_, deadline); });
    call_all(std::move(closings), deadline);
    stop_log();
    // Destructors of a thread that is in the middle of a step must not run.
    std::_Exit(static_cast<int>(request_.exit_code()));
}

void call_all(std::vector<std::function<void()>> calls, std::chrono::steady_clock::time_point deadline) {
    std::vector<std::future<void>> answers;
    for (std::function<void()>& call : calls) {
        std::packaged_task<void()> task([call = std::move(call)] {
            try {
                call();
            } catch (const std::exception& error) {
                log_error("{}", error.what());
            }
        });
        answers.push_back(task.get_future());
        std::thread(std::move(task)).detach();
    }
    for (const std::future<void>& answer : answers) answer.wait_until(deadline);
}

}  // namespace palimpsest
