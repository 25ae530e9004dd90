#include "sweep/lane.h"

#include "core/file.h"
#include "core/hash.h"
#include "core/text.h"
#include "core/version.h"
#include "sweep/machine.h"
#include "train/checkpoint.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <unistd.h>

namespace palimpsest {
namespace {

namespace fs = std::filesystem;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

// <results>/latest -> the run that started last. Convenience only: a file system without links is no reason to stop.
void point_latest_to(const std::string& folder) {
    std::error_code error;
    const fs::path run = fs::path(folder).lexically_normal(), sweep = run.parent_path(), results = sweep.parent_path();
    if (run.filename().empty() || sweep.filename().empty()) return;
    const fs::path temporary = results / fmt::format("latest.tmp-{}", ::getpid());
    fs::remove(temporary, error);
    fs::create_directory_symlink(sweep.filename() / run.filename(), temporary, error);
    if (!error) fs::rename(temporary, results / "latest", error);
    if (error) fs::remove(temporary, error);
}

const char* word(StopReason reason) {
    switch (reason) {
        case StopReason::finished: return "finished";
        case StopReason::early_stop: return "early_stop";
        case StopReason::interrupted: return "interrupted";
        case StopReason::non_finite: return "non_finite";
        case StopReason::failed: return "error";
    }
    return "?";
}

std::int64_t longest_length(const TaskSpec& task) {
    std::int64_t length = 0;
    for (const auto* list : {&task.train, &task.valid, &task.test}) {
        for (const SegmentSpec& segment : *list) {
            const Value* value = segment.resolved.find("length");
            if (value != nullptr) length = std::max<std::int64_t>(length, std::stoll(value->text));
        }
    }
    return length;
}

// Its process was killed between the end of its file and DONE.
bool is_complete(const std::string& file) {
    try {
        return file_exists(file) && read_run(file).status == "finished";
    } catch (const Error&) {
        return false;  // who goes on with it will say what is wrong
    }
}

}  // namespace

void read_finished(RunOutcome& outcome) {
    outcome.state = RunState::finished;
    try {
        const RunRecord record = read_run(outcome.folder + "/run.h5");
        const auto value = [&](const char* name) {
            const auto found = record.summary.find(name);
            return found == record.summary.end() ? not_a_number : found->second;
        };
        outcome.valid_accuracy = value("valid_accuracy");
        outcome.test_accuracy = value("test_accuracy");
        outcome.best_policy = value("best_policy_accuracy");
        outcome.seconds = value("seconds");
    } catch (const Error& error) {
        log_warning("{}", error.what());
    }
}

RunLane::RunLane(const PlannedRun& run, const std::string& folder, const PackFacts& pack)
    : run_(run), pack_(pack), folder_(folder), recorder_(pack.lanes > 1 ? short_id(run.spec.id) + ": " : "") {
    outcome_.folder = folder;
    outcome_.run_id = run.spec.id;
    outcome_.human = human_name(run);
}

RunLane::~RunLane() {
    try {
        folder_.unlock();
    } catch (const std::exception& error) {
        log_warning("{}", error.what());  // a LOCK that stays is dead as soon as this process is
    }
}

bool RunLane::wanted() {
    const Decision decision = decide(folder_);
    const bool wanted = decision.action == Action::start || decision.action == Action::resume;
    if (!wanted) skip(decision);
    return wanted;
}

bool RunLane::lock() {
    make_folders(folder_.path());
    try {
        folder_.lock();
    } catch (const Error&) {
        if (!wanted()) return false;
        throw;
    }
    if (folder_.state() != RunState::finished && is_complete(folder_.file("run.h5"))) folder_.write_done();
    if (folder_.state() == RunState::finished) {  // also by another process, a moment ago
        folder_.unlock();
        skip({Action::skip, "finished"});
        return false;
    }
    const std::optional<RunFailure> before = folder_.failure();
    folder_.clear_failed();
    point_latest_to(folder_.path());
    log_.emplace(folder_.file("run.log"));
    if (before && before->reason == word(StopReason::non_finite))
        log_warning("{}this run has failed before: {}. It goes on from its last checkpoint before that step; with the same program, device and "
                    "threads its numbers are the same, and it fails again. Another train.lr, train.clip or train.non_finite is another run, "
                    "with a folder of its own",
                    recorder_.prefix(), before->message);
    return true;
}

void RunLane::skip(const Decision& decision) {
    outcome_.skipped = true;
    outcome_.state = RunState::running;
    outcome_.message = decision.reason;
    if (decision.action == Action::skip) read_finished(outcome_);
}

Lane RunLane::trainer_lane() { return {lane_values(run_.spec), &recorder_, folder_.file("checkpoints"), run_.spec.id}; }

void RunLane::open(Trainer& trainer, std::int64_t from, std::function<std::string()> must_stop) {
    from_ = from;
    const RunSpec& spec = run_.spec;
    static_cast<void>(create_file(folder_.file("config.yaml"), emit_yaml(spec.resolved)));
    // Lanes make their steps together: only one that is alone draws the terminal's line.
    reporter_.emplace(pack_.label, pack_.lanes > 1 ? ProgressMode::never : pack_.options.progress, &*log_);
    if (pack_.options.on_progress) reporter_->also(pack_.options.on_progress);
    const std::string file = folder_.file("run.h5");
    RunWriter writer = file_exists(file) ? RunWriter::reopen(folder_.path(), from, spec.run.flush_seconds)
                                         : RunWriter::create(folder_.path(), run_header(run_, pack_, trainer), spec.run.flush_seconds);
    if (!pack_.policy_answers.empty()) writer.policy_answers(pack_.policy_answers);
    writer.begin_start(host_name(), spec.run.device == Device::cpu ? "cpu" : "cuda", from);
    writer.flush();
    recorder_.open(std::move(writer), *reporter_, std::move(must_stop));
    const std::int64_t fixed = trainer.fixed_parameter_count();
    log_info("{} {}: {} parameters{}, {} of state at length {}", from > 0 ? fmt::format("from step {}:", from) : "run", folder_.path(),
             trainer.parameter_count(), fixed > 0 ? fmt::format(" (and {} drawn, not trained)", fixed) : "",
             format_bytes(trainer.state_bytes()), longest_length(spec.task));
}

void RunLane::end(const LaneResult& result, const StopRequest& request) {
    RunWriter& writer = *recorder_.writer();
    switch (result.reason) {
        case StopReason::interrupted:
            writer.end_start(result.step, request.reason());
            writer.finish("interrupted", {}, {});
            folder_.write_failed({request.reason(), "stopped by a signal", result.step});
            outcome_.state = RunState::interrupted;
            outcome_.message = fmt::format("interrupted at step {}", result.step);
            break;
        case StopReason::non_finite:
        case StopReason::failed:
            end_failed({word(result.reason), result.message, result.step});
            return;
        case StopReason::finished:
        case StopReason::early_stop: end_finished(result, writer);
    }
    folder_.unlock();
}

void RunLane::end_finished(const LaneResult& result, RunWriter& writer) {
    const std::string checkpoints = folder_.file("checkpoints");
    for (const std::int64_t step : train::checkpoint_steps(checkpoints)) {
        const std::string path = train::checkpoint_path(checkpoints, step);
        writer.artifact(fs::path(path).lexically_relative(folder_.path()).string(), static_cast<std::int64_t>(fs::file_size(path)), sha256_file(path));
    }
    writer.end_start(result.step, word(result.reason));
    const EvalSpec& eval = run_.spec.eval;
    Attributes attributes = {{"selected_by", std::string(eval.select_by == SelectBy::valid ? "valid_accuracy" : "test_accuracy")},
                             {"accuracy_mean", std::string(eval.mean == AccuracyMean::answers ? "answers" : "examples")},
                             {"stopped", std::string(word(result.reason))}};
    // Its speed is that of this start, on a machine that it shared with them.
    attributes.emplace_back("workers", pack_.options.workers);
    attributes.emplace_back("lanes", static_cast<std::int64_t>(pack_.lanes));
    LaneResult recorded = result;
    if (result.step == from_) recorded.tokens_per_second = not_a_number;  // killed after its last step: this start made none
    writer.finish("finished", summary_values(recorded, pack_.slices, pack_.policy_answers, eval.mean), attributes);
    folder_.write_done();
    outcome_.state = RunState::finished;
    outcome_.valid_accuracy = result.last.valid_accuracy;
    outcome_.test_accuracy = result.last.test_accuracy;
    outcome_.best_policy = best_policy_accuracy(pack_.slices, pack_.policy_answers, eval.mean);
    outcome_.seconds = result.seconds;
}

void RunLane::end_failed(const RunFailure& failure) {
    outcome_.state = RunState::failed;
    outcome_.message = failure.message;
    log_error("{}{}", recorder_.prefix(), failure.message);
    try {
        if (RunWriter* writer = recorder_.writer()) {
            writer->end_start(failure.step, failure.reason);
            writer->finish("failed", {}, {});
        }
    } catch (const std::exception& error) {
        // What stands on disk is whole, as of the last flush.
        if (error.what() != failure.message) log_error("{}{}", recorder_.prefix(), error.what());
    }
    try {
        folder_.write_failed(failure);
        folder_.unlock();
    } catch (const std::exception& error) {
        log_error("{}", error.what());  // the folder reads "lost" then
    }
}

void RunLane::end_lost(const std::string& message) {
    outcome_.state = RunState::failed;
    outcome_.message = message;
}

void RunLane::close_for_good(const StopRequest& request) {
    recorder_.close_for_good(request.reason());
    folder_.write_failed({request.reason(), "stopped at once by a second signal", -1});
    folder_.unlock();
    log_info("stopped at once; what was logged since the last checkpoint will be made again\nresume with: {}", resume_command(folder_.path()));
}

}  // namespace palimpsest
