#include "sweep/execute.h"

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/text.h"
#include "core/thread.h"
#include "sweep/attendant.h"
#include "sweep/inspect.h"
#include "sweep/pack.h"
#include "sweep/progress.h"
#include "sweep/worker.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <list>
#include <poll.h>

namespace palimpsest {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// Between a second signal and the end of every worker: they close their files meanwhile.
constexpr auto patience = time_to_close + 3s;
constexpr auto line_interval = 5s;

std::string line_of(const RunOutcome& outcome, bool told) {
    if (outcome.skipped) return outcome.state == RunState::running ? "left alone: " + outcome.message : "finished before";
    switch (outcome.state) {
        case RunState::finished: {
            const std::string policy =
                std::isfinite(outcome.best_policy) ? fmt::format(", best policy {:.3f}", outcome.best_policy) : "";
            return fmt::format("finished in {}: test accuracy {:.3f}{}", format_duration(outcome.seconds), outcome.test_accuracy,
                               policy);
        }
        case RunState::interrupted: return outcome.message;
        case RunState::failed: {
            const std::string log = outcome.folder + "/run.log";
            return fmt::format("failed{}{}", told ? "" : ": " + outcome.message, file_exists(log) ? "; log: " + log : "");
        }
        default: return fmt::format("{}: {}", to_string(outcome.state), outcome.message);
    }
}

class SweepExecution {
public:
    SweepExecution(const Experiment& experiment, const Manifest& plan, const ExecuteOptions& options, const StopRequest& request)
        : experiment_(experiment), plan_(plan), plan_without_runs_(plan), options_(options), request_(request) {
        for (const SweepRun& run : plan.runs) outcomes_.emplace_back().folder = run.folder;
        plan_without_runs_.runs.clear();
    }

    std::vector<RunOutcome> perform() {
        std::vector<std::int64_t> from;
        std::vector<double> shares;
        for (std::size_t i = 0; i < outcomes_.size(); ++i) {
            const RunFolder folder(outcomes_[i].folder);
            from.push_back(decide(folder).trains() ? resume_step(folder) : -1);
            shares.push_back(share_before(experiment_.runs[i].spec.train, from.back()));
        }
        const std::vector<std::vector<std::size_t>> packs = plan_packs(experiment_.runs, from, experiment_.lanes);
        clock_ = SweepClock(std::move(shares));
        began_ = Clock::now();
        std::size_t next = 0;
        while (true) {
            while (may_start() && next < packs.size()) start(packs[next++]);
            if (workers_.empty()) break;
            wait();
            hear();
            pass_on_signals();
        }
        erase_live_line();
        // What was left to others may be done by now.
        for (std::size_t i = 0; i < outcomes_.size(); ++i)
            if (outcomes_[i].state == RunState::running) skip(i);
        return std::move(outcomes_);
    }

private:
    struct AtWork {
        AtWork(std::vector<std::size_t> pack, const WorkOrder& order) : runs(std::move(pack)), worker(order) {}
        std::vector<std::size_t> runs;
        Worker worker;
        Clock::time_point last_line = Clock::now();
        std::int64_t last_step = 0;
    };

    // Of a run, where it would go on from there. How many steps some epochs are is not known yet.
    static double share_before(const TrainSpec& train, std::int64_t from) {
        if (from < 0) return 1;
        return train.epochs > 0 ? 0 : static_cast<double>(from) / static_cast<double>(train.steps);
    }

    bool may_start() const {
        return starts_more_ && !request_.stop.load() && workers_.size() < static_cast<std::size_t>(options_.workers);
    }

    // The same however many runs are left, so that a resumed run computes with as many threads as before: then it goes on bit for
    // bit.
    std::int64_t workers_at_most() const { return std::min(options_.workers, static_cast<std::int64_t>(experiment_.runs.size())); }
    std::int64_t threads() const { return std::max<std::int64_t>(1, usable_threads() / workers_at_most()); }

    std::string place(std::size_t run) const { return fmt::format("[{}/{}]", run + 1, outcomes_.size()); }
    std::string place(const std::vector<std::size_t>& runs) const {
        if (runs.size() == 1) return place(runs.front());
        const bool beside = runs.back() - runs.front() + 1 == runs.size();
        return fmt::format("[{}{}{}/{}]", runs.front() + 1, beside ? "-" : "…", runs.back() + 1, outcomes_.size());
    }

    void start(const std::vector<std::size_t>& pack) {
        std::vector<std::size_t> runs;
        for (const std::size_t i : pack) {
            const PlannedRun& run = experiment_.runs[i];
            const Decision decision = decide(RunFolder(outcomes_[i].folder));
            log_info("{} {} {}{}  {}", place(i), decision.action(), short_id(run.spec.id),
                     decision.reason.empty() ? "" : " (" + decision.reason + ")", varied_text(run.varied));
            if (decision.trains()) runs.push_back(i);
            else skip(i);
        }
        if (runs.empty()) return;
        if (runs.size() > 1)
            log_info("{} {} train as lanes of one model", place(runs), plural(static_cast<std::int64_t>(runs.size()), "run"));
        WorkOrder order;
        order.manifest = manifest_yaml(part_of_plan(runs));
        order.folder = sweep_folder(options_.results, experiment_.name);
        order.workers = workers_at_most();
        if (experiment_.runs[runs.front()].spec.run.threads == 0) order.threads = threads();
        for (const std::size_t i : runs) order.run_ids.push_back(experiment_.runs[i].spec.id);
        try {
            workers_.emplace_back(runs, order);
        } catch (const Error& error) {
            for (const std::size_t i : runs) settle_as(i, RunState::failed, error.what());
        }
    }

    Manifest part_of_plan(const std::vector<std::size_t>& runs) const {
        Manifest part = plan_without_runs_;
        for (const std::size_t i : runs) part.runs.push_back(plan_.runs[i]);
        return part;
    }

    // A run that is not trained here: it was finished before, or another process is at it.
    void skip(std::size_t i) {
        outcomes_[i] = read_outcome(experiment_.runs[i], outcomes_[i].folder);
        outcomes_[i].skipped = true;
    }

    // Until a worker says something, or for a moment: signals come in between.
    void wait() const {
        std::vector<pollfd> wanted;
        for (const AtWork& at : workers_) at.worker.add_to(wanted);
        ::poll(wanted.data(), wanted.size(), wanted.empty() ? 5 : 50);
    }

    void hear() {
        for (auto at = workers_.begin(); at != workers_.end();) {
            const std::string prefix = place(at->runs);
            const bool ended = at->worker.receive([&](const std::string& line) { log_info("{} {}", prefix, line); });
            show_progress(*at);
            if (ended) {
                for (const std::size_t i : at->runs) {
                    settle_by_folder(i, at->worker);
                    clock_.at(i, 1);
                }
                at = workers_.erase(at);
                show_board();
            } else {
                ++at;
            }
        }
    }

    void show_progress(AtWork& at) {
        if (options_.progress == ProgressMode::never || !at.worker.progress || at.worker.progress->step == at.last_step) return;
        const Progress& progress = *at.worker.progress;
        at.last_step = progress.step;
        for (const std::size_t i : at.runs) clock_.at(i, share_done(progress));
        if (show_board()) return;
        if (progress.step < progress.steps && Clock::now() - at.last_line < line_interval) return;
        at.last_line = Clock::now();
        log_info("{} {}", place(at.runs), progress_line(progress));
    }

    // The line at the bottom of a terminal.
    bool show_board() const {
        const std::size_t width = live_width();
        if (options_.progress == ProgressMode::never || width == 0) return false;
        std::vector<RunAtWork> runs;
        for (const AtWork& at : workers_)
            if (at.worker.progress)
                runs.push_back({place(at.runs), human_name(experiment_.runs[at.runs.front()]), *at.worker.progress});
        const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
        return show_live_line(runs.empty() ? "" : live_line(runs, outcomes_.size() > 1 ? clock_.left(seconds) : "", width));
    }

    // Says what became of a run whose worker has ended. Its folder tells it, also of a run that another process took; where the
    // worker died before it could write there, how it died does.
    void settle_by_folder(std::size_t i, const Worker& worker) {
        RunOutcome outcome = read_outcome(experiment_.runs[i], outcomes_[i].folder);
        const bool taken = worker.taken.contains(experiment_.runs[i].spec.id);
        const bool told = taken && (outcome.state == RunState::failed || outcome.state == RunState::interrupted);
        outcome.skipped = outcome.state == RunState::running || (outcome.state == RunState::finished && !taken);
        // A worker that a signal meets before it can listen has done nothing yet.
        if (outcome.state != RunState::running && outcome.state != RunState::finished && !told)
            return settle_as(i, request_.stop.load() ? RunState::interrupted : RunState::failed, worker.last_words());
        outcomes_[i] = std::move(outcome);
        report(i, told);
    }

    void settle_as(std::size_t i, RunState state, const std::string& message) {
        outcomes_[i] = read_outcome(experiment_.runs[i], outcomes_[i].folder);
        outcomes_[i].state = state;
        outcomes_[i].message = message;
        report(i, false);
    }

    // `told`: its worker has said why it failed.
    void report(std::size_t i, bool told) {
        log_info("{} {}", place(i), line_of(outcomes_[i], told));
        if (outcomes_[i].state == RunState::failed && options_.fail_fast) starts_more_ = false;
    }

    // The first signal once; a second one as "leave at once", which they take as such from nobody else. Who does not leave is
    // killed.
    void pass_on_signals() {
        if (request_.stop.load() && !std::exchange(told_to_stop_, true)) {
            if (!workers_.empty()) log_info("stopping; each run finishes its step and writes a checkpoint");
            for (const AtWork& at : workers_) at.worker.signal(request_.signal.load());
        }
        if (request_.now.load() && !told_to_leave_) {
            told_to_leave_ = Clock::now();
            for (const AtWork& at : workers_) at.worker.signal(leave_at_once);
        }
        if (told_to_leave_ && Clock::now() - *told_to_leave_ > patience)
            for (const AtWork& at : workers_) at.worker.signal(SIGKILL);
    }

    const Experiment& experiment_;
    const Manifest& plan_;
    Manifest plan_without_runs_;
    const ExecuteOptions& options_;
    const StopRequest& request_;
    std::vector<RunOutcome> outcomes_;
    std::list<AtWork> workers_;
    SweepClock clock_{{}};
    Clock::time_point began_{};
    bool starts_more_ = true, told_to_stop_ = false;
    std::optional<Clock::time_point> told_to_leave_;
};

}  // namespace

SweepResult execute_sweep(const Experiment& experiment, const ExecuteOptions& options, const StopRequest& request) {
    SweepResult result;
    result.plan = plan_sweep(experiment, options.results, options.command);
    // A point of the grid that cannot work is told now, not in the middle of the night.
    InspectOptions inspection{experiment.lanes, {}};
    for (const SweepRun& run : result.plan.runs) inspection.folders.push_back(run.folder);
    static_cast<void>(inspect_runs(experiment.runs, inspection));
    result.in_force = std::make_unique<PlanInForce>(sweep_folder(options.results, experiment.name), result.plan);
    for (const std::string& note : result.in_force->notes()) log_info("{}", note);
    result.outcomes = SweepExecution(experiment, result.plan, options, request).perform();
    return result;
}

}  // namespace palimpsest
