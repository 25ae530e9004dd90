// One run, from the lock to DONE.
#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/text.h"
#include "core/version.h"
#include "sweep/attendant.h"
#include "sweep/execute.h"
#include "sweep/machine.h"
#include "sweep/plan.h"
#include "sweep/record.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <new>
#include <unistd.h>

namespace palimpsest {
namespace {

namespace fs = std::filesystem;

constexpr const char* checkpoints = "checkpoints";

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

// The last training loss that stands in the file up to `step`.
double loss_before(const std::string& file, std::int64_t step) {
    double loss = std::numeric_limits<double>::quiet_NaN();
    const RunRecord record = read_run(file);
    const auto column = record.train.find("loss");
    if (column == record.train.end()) return loss;
    for (std::size_t i = 0; i < record.step.size() && record.step[i] <= step; ++i) loss = static_cast<double>(column->second[i]);
    return loss;
}

const char* word(StopReason reason) {
    switch (reason) {
        case StopReason::finished: return "finished";
        case StopReason::early_stop: return "early_stop";
        case StopReason::interrupted: return "interrupted";
        case StopReason::non_finite: return "non_finite";
    }
    return "?";
}

class Execution {
public:
    Execution(const PlannedRun& run, const Experiment& experiment, const std::string& path, const std::string& sweep,
              const std::string& label, const ExecuteOptions& options, const StopRequest& request)
        : run_(run), experiment_(experiment), sweep_(sweep), label_(label), options_(options), request_(request), folder_(path) {
        outcome_.folder = path;
        outcome_.run_id = run.spec.id;
        outcome_.human = human_name(run);
    }

    RunOutcome perform() {
        if (const Decision decision = decide(folder_); decision.action == Action::skip || decision.action == Action::leave) return skip(decision);
        // Before anything is created: the trainer refuses what does not fit together.
        Trainer trainer(run_.spec, {{lane_values(run_.spec), &recorder_, folder_.file(checkpoints), run_.spec.id}});
        make_folders(folder_.path());
        folder_.lock();
        if (folder_.state() == RunState::finished) {  // by another process, a moment ago
            folder_.unlock();
            return skip({Action::skip, "finished"});
        }
        folder_.clear_failed();
        point_latest_to(folder_.path());
        try {
            RunLog log(folder_.file("run.log"));
            attend(trainer, log);
        } catch (const LostLock& lost) {
            outcome_.state = RunState::failed;
            outcome_.message = lost.what();
        }
        return outcome_;
    }

private:
    RunOutcome skip(const Decision& decision) {
        outcome_.skipped = true;
        outcome_.state = decision.action == Action::skip ? RunState::finished : RunState::running;
        outcome_.message = decision.reason;
        if (outcome_.state != RunState::finished) return outcome_;
        try {
            const RunRecord record = read_run(folder_.file("run.h5"));
            const auto value = [&](const char* name) {
                const auto found = record.summary.find(name);
                return found == record.summary.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
            };
            outcome_.valid_accuracy = value("valid_accuracy");
            outcome_.test_accuracy = value("test_accuracy");
            outcome_.best_policy = value("best_policy_accuracy");
            outcome_.seconds = value("seconds");
        } catch (const Error& error) {
            log_warning("{}", error.what());
        }
        return outcome_;
    }

    // Trains under the eyes of the attendant and writes down how it ended.
    void attend(Trainer& trainer, RunLog& log) {
        std::optional<RunFailure> failure;
        LaneResult result;
        {
            Attendant attendant(folder_, request_, [this] { recorder_.close_for_good(request_.reason()); });
            attendant_ = &attendant;
            ProgressReporter reporter(label_, options_.progress, &log);
            try {
                open(trainer, reporter);
                result = trainer.run(request_.stop).front();
            } catch (const LostLock&) {
                attendant_ = nullptr;
                throw;
            } catch (const std::bad_alloc&) {
                failure = RunFailure{"oom", "out of memory", -1};
            } catch (const std::exception& error) {
                failure = RunFailure{"error", first_lines(error.what()), -1};
            }
            attendant_ = nullptr;
        }
        try {
            if (!failure) end(result);
        } catch (const std::exception& error) {
            failure = RunFailure{"error", error.what(), result.step};
        }
        if (failure) end_failed(*failure);
        folder_.unlock();
    }

    void open(Trainer& trainer, ProgressReporter& reporter) {
        const RunSpec& spec = run_.spec;
        static_cast<void>(create_file(folder_.file("config.yaml"), emit_yaml(spec.resolved)));
        const std::string file = folder_.file("run.h5");
        const std::int64_t from = trainer.resume();
        const bool again = file_exists(file);
        const double loss = again ? loss_before(file, from) : std::numeric_limits<double>::quiet_NaN();
        RunWriter writer = again ? RunWriter::reopen(folder_.path(), from, spec.run.flush_seconds)
                                 : RunWriter::create(folder_.path(), run_header(run_, experiment_, sweep_, trainer, options_.command),
                                                     spec.run.flush_seconds);
        slices_ = trainer.slices();
        if (spec.eval.policies) {
            policy_answers_ = trainer.policy_answers();
            writer.policy_answers(policy_answers_);
        }
        writer.begin_start(host_name(), spec.run.device == Device::cpu ? "cpu" : "cuda", from);
        writer.flush();
        recorder_.open(std::move(writer), reporter, loss);
        log_info("{} {}: {}", from > 0 ? fmt::format("from step {}:", from) : "run", folder_.path(),
                 fmt::format("{} parameters, {} of state at length {}", trainer.parameter_count(), format_bytes(trainer.state_bytes()), longest()));
        log_debug("palimpsest {} at {}, LibTorch {}, {} on {}", build_info().version, short_commit(), libtorch_version(), cpu_model(), host_name());
    }

    std::int64_t longest() const {
        std::int64_t length = 0;
        for (const auto* list : {&run_.spec.task.train, &run_.spec.task.valid, &run_.spec.task.test}) {
            for (const SegmentSpec& segment : *list) {
                const Value* value = segment.resolved.find("length");
                if (value != nullptr) length = std::max<std::int64_t>(length, std::stoll(value->text));
            }
        }
        return length;
    }

    void end(const LaneResult& result) {
        RunWriter& writer = *recorder_.writer();
        switch (result.reason) {
            case StopReason::interrupted: {
                writer.end_start(result.step, request_.reason());
                writer.finish("interrupted", {}, {});
                folder_.write_failed({request_.reason(), "stopped by a signal", result.step});
                outcome_.state = RunState::interrupted;
                outcome_.message = fmt::format("interrupted at step {}", result.step);
                return;
            }
            case StopReason::non_finite: {
                writer.end_start(result.step, word(result.reason));
                writer.finish("failed", {}, {});
                folder_.write_failed({word(result.reason), result.message, result.step});
                outcome_.state = RunState::failed;
                outcome_.message = result.message;
                log_error("{}", result.message);
                return;
            }
            case StopReason::finished:
            case StopReason::early_stop: end_finished(result, writer);
        }
    }

    void end_finished(const LaneResult& result, RunWriter& writer) {
        for (const std::int64_t step : train::checkpoint_steps(folder_.file(checkpoints))) {
            const std::string path = train::checkpoint_path(folder_.file(checkpoints), step);
            writer.artifact(fs::path(path).lexically_relative(folder_.path()).string(), static_cast<std::int64_t>(fs::file_size(path)), sha256_file(path));
        }
        writer.end_start(result.step, word(result.reason));
        const EvalSpec& eval = run_.spec.eval;
        writer.finish("finished", summary_values(result, slices_, policy_answers_, recorder_.final_loss(), eval.mean),
                      {{"selected_by", std::string(eval.select_by == SelectBy::valid ? "valid_accuracy" : "test_accuracy")},
                       {"accuracy_mean", std::string(eval.mean == AccuracyMean::answers ? "answers" : "examples")},
                       {"stopped", std::string(word(result.reason))}});
        folder_.write_done();
        outcome_.state = RunState::finished;
        outcome_.valid_accuracy = result.last.valid_accuracy;
        outcome_.test_accuracy = result.last.test_accuracy;
        outcome_.best_policy = best_policy_accuracy(slices_, policy_answers_, eval.mean);
        outcome_.seconds = result.seconds;
    }

    void end_failed(const RunFailure& failure) {
        outcome_.state = RunState::failed;
        outcome_.message = failure.message;
        log_error("{}", failure.message);
        try {
            if (RunWriter* writer = recorder_.writer()) {
                writer->end_start(failure.step, failure.reason);
                writer->finish("failed", {}, {});
            }
        } catch (const std::exception& error) {
            log_error("{}", error.what());  // what stands on disk is whole, as of the last flush
        }
        folder_.write_failed(failure);
    }

    // LibTorch puts a stack trace under its messages.
    static std::string first_lines(const std::string& text) {
        const std::size_t trace = text.find("\nException raised from");
        return text.substr(0, trace);
    }

    const PlannedRun& run_;
    const Experiment& experiment_;
    const std::string &sweep_, &label_;
    const ExecuteOptions& options_;
    const StopRequest& request_;
    RunFolder folder_;
    RunOutcome outcome_;
    const Attendant* attendant_ = nullptr;
    RunRecorder recorder_{[this] { return attendant_ ? attendant_->problem() : ""; }};
    std::vector<Slice> slices_;
    std::vector<std::int64_t> policy_answers_;
};

}  // namespace

RunOutcome execute_run(const PlannedRun& run, const Experiment& experiment, const std::string& folder, const std::string& sweep,
                       const std::string& label, const ExecuteOptions& options, const StopRequest& request) {
    return Execution(run, experiment, folder, sweep, label, options, request).perform();
}

}  // namespace palimpsest
