#include "sweep/attendant.h"

#include "core/error.h"
#include "core/log.h"

#include <chrono>
#include <cstdlib>

namespace palimpsest {

using namespace std::chrono_literals;

Attendant::Attendant(RunFolder& folder, const StopRequest& request, std::function<void()> close)
    : folder_(folder), request_(request), close_(std::move(close)), thread_([this] { work(); }) {}

Attendant::~Attendant() {
    {
        const std::lock_guard lock(mutex_);
        done_ = true;
    }
    wake_.notify_all();
    thread_.join();
}

std::string Attendant::problem() const {
    const std::lock_guard lock(mutex_);
    return problem_;
}

void Attendant::work() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, 50ms, [this] { return done_; })) {
        lock.unlock();
        if (request_.now.load()) leave();
        std::string problem;
        try {
            folder_.heartbeat();
        } catch (const Error& error) {
            problem = error.what();
        }
        lock.lock();
        if (!problem.empty()) {
            problem_ = problem;
            return;
        }
    }
}

void Attendant::leave() {
    erase_live_line();
    try {
        close_();
        folder_.write_failed({request_.reason(), "stopped at once by a second signal", -1});
        folder_.unlock();
    } catch (const std::exception& error) {
        log_error("{}", error.what());
    }
    log_info("stopped at once; what was logged since the last checkpoint will be made again\nresume with: palimpsest resume {}", folder_.path());
    stop_log();
    // Destructors of a thread that is in the middle of a step must not run.
    std::_Exit(static_cast<int>(request_.exit_code()));
}

}  // namespace palimpsest
