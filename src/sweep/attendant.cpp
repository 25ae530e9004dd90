#include "sweep/attendant.h"

#include "core/error.h"
#include "core/log.h"

#include <chrono>
#include <cstdlib>

namespace palimpsest {

using namespace std::chrono_literals;

Attendant::Attendant(std::vector<RunFolder*> folders, const StopRequest& request, std::function<void()> close)
    : folders_(std::move(folders)), request_(request), close_(std::move(close)), thread_([this] { work(); }) {}

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
        std::erase_if(folders_, [&](RunFolder* folder) {
            try {
                folder->heartbeat();
                return false;
            } catch (const Error& error) {
                problem = error.what();
                return true;
            }
        });
        lock.lock();
        if (problem_.empty()) problem_ = problem;
    }
}

void Attendant::leave() {
    erase_live_line();
    try {
        close_();
    } catch (const std::exception& error) {
        log_error("{}", error.what());
    }
    stop_log();
    // Destructors of a thread that is in the middle of a step must not run.
    std::_Exit(static_cast<int>(request_.exit_code()));
}

}  // namespace palimpsest
