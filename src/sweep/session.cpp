#include "sweep/session.h"

#include "core/file.h"
#include "core/hash.h"
#include "core/text.h"
#include "core/version.h"
#include "store/run_lock.h"
#include "store/run_reader.h"
#include "sweep/machine.h"
#include "train/checkpoint.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <unistd.h>

namespace palimpsest {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// <results>/latest -> the run that started last. Convenience only: a file system without links is no reason to stop.
void point_latest_to(const std::string& folder, const std::string& experiment) {
    std::error_code error;
    const fs::path run = fs::path(folder).lexically_normal(), name = fs::path(experiment).lexically_normal();
    fs::path results = run.parent_path();
    for (auto part = name.end(); part != name.begin();
         results = results.parent_path())           // a name may have several parts: study/recall
        if (results.filename() != *--part) return;  // moved elsewhere
    if (results.empty()) results = ".";
    const fs::path temporary = results / fmt::format("latest.tmp-{}", ::getpid());
    fs::remove(temporary, error);
    fs::create_directory_symlink(name / run.filename(), temporary, error);
    if (!error) fs::rename(temporary, results / "latest", error);
    if (error) fs::remove(temporary, error);
}

// In what the program that goes on with a run differs from the one that left it: "commit 1a2b (before: 3c4d)"; "" where in nothing.
std::string other_program(const RunRecord& record, const Attributes& now) {
    if (record.starts.empty()) return "";
    std::vector<std::string> words;
    for (const char* name : {"version", "commit", "dirty", "libtorch"}) {
        const std::string here = words_under(now, name), before = words_under(record.starts.back().provenance, name);
        if (here != before) words.push_back(fmt::format("{} {} (before: {})", name, here, before));
    }
    return join(words, ", ");
}

// Set aside under another name, where an older one of that name gives way. False where there is nothing.
bool set_aside(const std::string& path, const std::string& ending) {
    std::error_code error;
    if (!fs::exists(path, error)) return false;
    fs::remove_all(path + ending, error);
    fs::rename(path, path + ending, error);
    if (error) fail(ExitCode::run_failed, "cannot rename '{}' to '{}{}': {}", path, path, ending, error.message());
    return true;
}

const char* word(StopReason reason) { return stop_reason_names[static_cast<std::size_t>(reason)]; }

// Its process was killed between the end of its file and DONE.
bool is_complete(const std::string& file) {
    try {
        return file_exists(file) && read_run(file).status == "finished";
    } catch (const Error&) {
        return false;  // who goes on with it will say what is wrong
    }
}

}  // namespace

RunFailure failure_of(const std::exception_ptr& thrown, std::int64_t step) {
    const std::int64_t at = step > 0 ? step : -1;
    try {
        std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
        const std::string text = error.what();
        // The CPU's allocator throws what any other check of LibTorch throws.
        const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                            dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                            text.find("DefaultCPUAllocator") != std::string::npos;
        // LibTorch puts a stack trace under its messages, of either form.
        const std::string first_lines = text.substr(0, std::min(text.find("\nException raised from"), text.find("\nframe #0: ")));
        return memory ? RunFailure{"oom", "out of memory: " + first_lines, at} : RunFailure{"error", first_lines, at};
    } catch (...) {  // a listener's end must not throw
        return {"error", "it is not known why", at};
    }
}

RunSession::RunSession(const PlannedRun& run, const std::string& folder, const PackFacts& pack)
    : run_(run), pack_(pack), prefix_(pack.lanes > 1 ? short_id(run.spec.id) + ": " : ""), folder_(folder) {}

RunSession::~RunSession() {
    try {
        if (lock_) lock_->release();
    } catch (const std::exception& error) {
        log_warning("{}", error.what());  // a LOCK that stays is dead as soon as this process is
    }
}

bool RunSession::wanted() {
    skipped_ = !decide(folder_).trains();
    return !skipped_;
}

bool RunSession::take() {
    make_folders(folder_.path());
    try {
        lock_.emplace(folder_.path());
    } catch (const Error&) {
        if (!wanted()) return false;
        throw;
    }
    phase_ = Phase::locked;
    if (!file_exists(folder_.file("DONE")) && is_complete(folder_.file("run.h5"))) folder_.write_done();
    if (folder_.state() == RunState::finished) {  // also by another process, a moment ago
        lock_->release();
        phase_ = Phase::closed;
        skipped_ = true;
        return false;
    }
    log_.emplace(folder_.file("run.log"));
    if (const std::optional<RunFailure> before = folder_.failure(); before && before->reason == word(StopReason::non_finite))
        log_warning(
            "{}this run has failed before: {}. It goes on from {}; with the same program, device and threads its numbers are the "
            "same, "
            "and it fails again. Another train.lr, train.clip or train.non_finite is another run, with a folder of its own",
            prefix_, before->message, resume_step(folder_) > 0 ? "its last checkpoint before that step" : "its beginning");
    folder_.clear_end();
    // Rows that are gone cannot be made from a checkpoint: the run is made again, and what is left of it stays for whoever wants to
    // look.
    if (const std::string lost = folder_.lost_record(RunParts{}); !lost.empty()) {
        std::vector<std::string> kept;
        if (set_aside(folder_.file("run.h5"), ".damaged")) kept.push_back("run.h5.damaged");
        if (set_aside(folder_.file("checkpoints"), ".unused")) kept.push_back("checkpoints.unused");
        const std::string left = kept.empty() ? "" : fmt::format(" (what was left is kept as {})", join(kept, " and "));
        log_warning("{}{}; the run trains from the beginning{}", prefix_, lost, left);
    }
    point_latest_to(folder_.path(), run_.spec.name);
    if (pack_.options.on_taken) pack_.options.on_taken(run_.spec.id);
    return true;
}

RunOutcome RunSession::outcome() const {
    RunOutcome outcome = read_outcome(run_, folder_.path());
    outcome.skipped = skipped_;
    if (problem_.empty()) return outcome;
    outcome.state = RunState::failed;
    outcome.message = problem_;
    return outcome;
}

Lane RunSession::trainer_lane() { return {lane_values(run_.spec), this, folder_.file("checkpoints"), run_.spec.id}; }

double RunSession::seconds() const {
    return std::max(0.0, std::chrono::duration<double>(ended_at_.value_or(Clock::now()) - began_).count());
}

void RunSession::open(Trainer& trainer, std::int64_t from) {
    const std::lock_guard lock(mutex_);
    from_ = last_step_ = from;
    began_ = Clock::now();
    const RunSpec& spec = run_.spec;
    const auto may_write = [this] { lock_->heartbeat(0s); };
    may_write();
    static_cast<void>(create_file(folder_.file("config.yaml"), emit_yaml(spec.resolved)));
    // Lanes make their steps together: only one that is alone draws the terminal's line.
    reporter_.emplace(pack_.label, pack_.lanes > 1 ? ProgressMode::never : pack_.options.progress, &*log_);
    const RunHeader header = run_header(run_, pack_, trainer);
    const double cadence = spec.run.flush_seconds;
    writer_.reset(new RunWriter(file_exists(folder_.file("run.h5"))
                                    ? RunWriter::reopen(folder_.path(), header, from, cadence, may_write)
                                    : RunWriter::create(folder_.path(), header, cadence, may_write)));
    if (const std::string other = other_program(writer_->record(), header.provenance); !other.empty())
        log_warning("{}another program goes on with this run: {}", prefix_, other);
    if (!pack_.policy_answers.empty()) writer_->policy_answers(pack_.policy_answers);
    writer_->begin_start({.host = host_name(),
                          .device = spec.run.device == Device::cpu ? "cpu" : "cuda",
                          .from_step = from,
                          .provenance = header.provenance,
                          .git_diff = header.git_diff});
    const std::int64_t fixed = trainer.fixed_parameter_count();
    log_info("{} {}: {} parameters{}, {} of state at length {}", from > 0 ? fmt::format("from step {}:", from) : "run",
             folder_.path(), trainer.parameter_count(), fixed > 0 ? fmt::format(" (and {} drawn, not trained)", fixed) : "",
             format_bytes(trainer.state_bytes()), trainer.state_length());
}

RunWriter& RunSession::writer() {
    if (phase_ != Phase::locked)
        throw Error(ExitCode::run_failed, "the run is closed");  // by a second signal, in the middle of a step
    PALIMPSEST_ASSERT(writer_ != nullptr, "'{}' was not opened", folder_.path());
    return *writer_;
}

void RunSession::train_row(std::int64_t step, std::span<const float> metrics) {
    lock_->heartbeat();
    const std::lock_guard lock(mutex_);
    writer().train_row(step, metrics);
    last_step_ = step;
}

void RunSession::eval(const EvalResult& result) {
    const std::lock_guard lock(mutex_);
    writer().eval_row(result.step, result.answers, result.loss_sum);
    log_info("{}step {}: valid accuracy {:.4f}, test accuracy {:.4f}", prefix_, result.step, result.valid_accuracy,
             result.test_accuracy);
}

void RunSession::progress(const Progress& progress) {
    {
        const std::lock_guard lock(mutex_);
        writer().system_row({progress.step, seconds(), static_cast<float>(progress.tokens_per_second)});
    }
    if (pack_.options.on_progress) pack_.options.on_progress(progress);
    reporter_->report(progress);
}

void RunSession::checkpoint_begins(std::int64_t) {
    const std::lock_guard lock(mutex_);
    lock_->heartbeat(0s);
    writer().flush();
}

void RunSession::checkpoint_written(const std::string& path, std::int64_t step) {
    log_debug("{}step {}: checkpoint '{}'", prefix_, step, path);
}

void RunSession::warning(const std::string& message) { log_warning("{}{}", prefix_, message); }

void RunSession::ended(const LaneResult& result) {
    if (result.failure) return fail(result.failure, result.step);
    const std::lock_guard lock(mutex_);
    ended_at_ = Clock::now();
    if (result.reason == StopReason::non_finite && phase_ == Phase::locked)
        end_failed({word(result.reason), result.message, result.step});
}

void RunSession::write_end(const LaneResult& result, const StopRequest& request) {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::locked) return;
    try {
        switch (result.reason) {
            case StopReason::interrupted:
                writer().end_start(result.step, request.reason(), seconds());
                writer().finish("interrupted", {}, {});
                folder_.write_failed({request.reason(), "stopped by a signal", result.step});
                break;
            case StopReason::non_finite:
            case StopReason::failed: return;  // it was told when it happened
            case StopReason::finished:
            case StopReason::early_stop: end_finished(result);
        }
        give_back();
    } catch (const LostLock& lost) {
        end_lost(lost.what());
    } catch (const std::exception& error) {
        end_failed({"error", error.what(), result.step});
    }
}

void RunSession::end_finished(const LaneResult& result) {
    const std::string checkpoints = folder_.file("checkpoints");
    for (const std::int64_t step : train::checkpoint_steps(checkpoints)) {
        const std::string path = train::checkpoint_path(checkpoints, step);
        writer().artifact({fs::path(path).lexically_relative(folder_.path()).string(),
                           static_cast<std::int64_t>(fs::file_size(path)), sha256_file(path)});
    }
    writer().end_start(std::max(from_, result.step), word(result.reason), seconds());
    const EvalSpec& eval = run_.spec.eval;
    Attributes attributes = {{"selected_by", std::string(eval.select_by == SelectBy::valid ? "valid_accuracy" : "test_accuracy")},
                             {"accuracy_mean", std::string(eval.mean == AccuracyMean::answers ? "answers" : "examples")},
                             {"stopped", std::string(word(result.reason))}};
    // The speed is that of this start, on a machine that so many workers and lanes shared.
    attributes.emplace_back("workers", pack_.options.workers);
    attributes.emplace_back("lanes", static_cast<std::int64_t>(pack_.lanes));
    LaneResult recorded = result;
    recorded.seconds = writer().seconds();
    if (result.step <= from_) recorded.tokens_per_second = not_a_number;  // this start made none of its steps
    if (result.reason == StopReason::early_stop)
        log_info("{}stopped early at step {}: the {} accuracy {:.4f} exceeds train.early_stop {}", prefix_, result.step,
                 eval.select_by == SelectBy::valid ? "valid" : "test",
                 eval.select_by == SelectBy::valid ? result.last.valid_accuracy : result.last.test_accuracy,
                 run_.spec.train.early_stop);
    writer().finish("finished", summary_values(recorded, writer().record(), eval.mean), attributes);
    folder_.write_done();
}

void RunSession::fail(const std::exception_ptr& thrown, std::int64_t step) {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::closed) end_failed(failure_of(thrown, step));
}

void RunSession::end_failed(const RunFailure& failure) {
    problem_ = failure.message;
    // Each may fail on the disk that made the run fail: what stands there is whole, and the folder reads "lost" without
    // FAILED.json.
    const auto try_to = [&](const auto& action) {
        try {
            action();
        } catch (const LostLock&) {
            throw;
        } catch (const std::exception& error) {
            if (error.what() != failure.message) log_error("{}{}", prefix_, error.what());
        }
    };
    try {
        try_to([&] {
            if (lock_) lock_->heartbeat(0s);
        });
        log_error("{}{}", prefix_, failure.message);
        try_to([&] {
            if (!writer_ || writer_->finished()) return;  // a whole record stands there: DONE alone is missing
            writer_->end_start(failure.step, failure.reason, seconds());
            writer_->finish("failed", {}, {});
        });
        try_to([&] {
            if (phase_ == Phase::locked) folder_.write_failed(failure);
        });
        try_to([&] { give_back(); });
    } catch (const LostLock& lost) {
        end_lost(lost.what());
    }
}

void RunSession::refuse(const std::string& problem) {
    problem_ = problem;
    log_error("{}: {}", short_id(run_.spec.id), problem);
}

// The folder is another's now: not even its log is written any more.
void RunSession::end_lost(const std::string& message) {
    reporter_.reset();
    log_.reset();
    log_error("{}{}", prefix_, message);
    problem_ = message;
    give_back();
}

void RunSession::give_back() {
    phase_ = Phase::closed;
    writer_.reset();  // while the folder still is ours: it publishes what it may
    if (lock_) lock_->release();
    reporter_.reset();
    log_.reset();  // what other lanes say from now on is not of this run
}

void RunSession::heartbeat() {
    try {
        lock_->heartbeat();
    } catch (const Error&) {
        // It is told again to whoever writes next.
    }
}

void RunSession::close_now(const StopRequest& request, std::chrono::steady_clock::time_point deadline) {
    // A writer that hangs on a dead disk must not keep the process: what stands on disk is a whole file anyhow.
    const std::unique_lock lock(mutex_, deadline);
    if (!lock || phase_ != Phase::locked) return;
    phase_ = Phase::closed;
    lock_->heartbeat(0s);
    if (writer_) {
        writer_->end_start(last_step_, request.reason(), seconds());
        writer_->flush();
    }
    folder_.write_failed({request.reason(), "stopped at once by a second signal", -1});
    lock_->release();
    log_info("stopped at once; what was logged since the last checkpoint will be made again\nresume with: {}",
             resume_command(folder_.path()));
}

}  // namespace palimpsest
