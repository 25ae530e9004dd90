#include "sweep/plan.h"

#include "core/hash.h"
#include "core/log.h"
#include "core/text.h"
#include "store/run_reader.h"
#include "train/checkpoint.h"

#include <algorithm>
#include <optional>

namespace palimpsest {
namespace {

// "[base_conv, delta]" -> "base_conv+delta", "[delta, delta]" -> "delta"
std::string compact(const std::string& text) {
    std::vector<std::string> words = {""};
    for (const char c : text) {
        if (c == ',') words.emplace_back();
        else if (std::string_view("[]{}\" ").find(c) == std::string_view::npos) words.back() += c == ':' ? '=' : c;
    }
    if (std::all_of(words.begin(), words.end(), [&](const std::string& word) { return word == words.front(); })) words.resize(1);
    return join(words, "+");
}

// A word tells what it is; a number needs its key.
bool explains_itself(const std::string& value) {
    const char c = value.empty() ? '0' : value[0];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return letter && value != "true" && value != "false";
}

// The name in a sweep's folder that holds the run; nothing where none of the `names` does. Of several the one that
// has finished, else the first, those with the whole id before those with eight digits.
// Error(usage) where one that says it holds the run holds another.
std::optional<std::string> folder_of(const std::string& sweep, const std::vector<std::string>& names, const std::string& run_id) {
    std::vector<std::string> found;
    for (auto name = std::lower_bound(names.begin(), names.end(), run_id.substr(0, 8)); name != names.end(); ++name) {
        const std::string digits = name->substr(0, name->find('-'));
        if (!name->starts_with(run_id.substr(0, 8))) break;
        if (digits != run_id && digits.size() != 8) continue;
        const std::string held = run_id_in(sweep + "/" + *name);
        if (digits == run_id && !held.empty() && held != run_id)
            fail(ExitCode::usage,
                 "'{}/{}' holds the run {}, not {} as its name says: was it copied? Move it away, or give this experiment another "
                 "name",
                 sweep, *name, held, run_id);
        // Older versions wrote the first eight digits alone. Whose they are is told by what lies inside.
        if (digits == run_id || held == run_id) found.push_back(*name);
    }
    if (found.empty()) return std::nullopt;
    std::stable_partition(found.begin(), found.end(), [&](const std::string& name) { return name.starts_with(run_id); });
    const auto finished = [&](const std::string& name) { return RunFolder(sweep + "/" + name).state() == RunState::finished; };
    const auto best = std::find_if(found.begin(), found.end(), finished);
    const std::string& chosen = best == found.end() ? found.front() : *best;
    if (found.size() > 1)
        log_warning("the run {} lies in several folders of '{}': {}; '{}' counts", run_id, sweep, join(found, ", "), chosen);
    return chosen;
}

}  // namespace

std::string human_name(const PlannedRun& run) {
    std::vector<std::string> words;
    for (const auto& [key, value] : run.varied) {
        const std::string word = compact(value), last = key.substr(key.rfind('.') + 1);
        words.push_back(explains_itself(word) ? word : last + "=" + word);
    }
    if (words.empty()) {
        std::vector<std::string> mixers;
        for (const std::string& mixer : run.spec.model.mixers_by_layer())
            if (!contains(mixers, mixer)) mixers.push_back(mixer);
        words = {run.spec.task.name, join(mixers, "+")};
    }
    return join(words, "-");
}

std::string sweep_folder(const std::string& results, const std::string& experiment) { return results + "/" + experiment; }

std::vector<std::string> planned_folders(const std::string& results, const Experiment& experiment) {
    const std::string sweep = sweep_folder(results, experiment.name);
    const std::vector<std::string> names = folder_exists(sweep) ? list_folders(sweep) : std::vector<std::string>();
    std::vector<std::string> folders;
    for (const PlannedRun& run : experiment.runs)
        folders.push_back(sweep + "/" +
                          folder_of(sweep, names, run.spec.id).value_or(run_folder_name(run.spec.id, human_name(run))));
    return folders;
}

std::string resume_command(const std::string& folder) { return shell_line({"palimpsest", "resume", folder}); }

std::string varied_text(const std::vector<std::pair<std::string, std::string>>& varied) {
    std::vector<std::string> words;
    for (const auto& [key, value] : varied) words.push_back(key + "=" + value);
    return join(words, " ");
}

std::string short_id(const std::string& run_id) { return run_id.substr(0, 8); }

std::string sweep_id(const Experiment& experiment) {
    std::vector<std::string> ids;
    for (const PlannedRun& run : experiment.runs) ids.push_back(run.spec.id);
    std::sort(ids.begin(), ids.end());
    return sha256_hex(join(ids, "\n")).substr(0, 12);
}

Decision decide(const RunFolder& folder) {
    const auto failure_text = [&](const char* verb) {
        const std::optional<RunFailure> failure = folder.failure();
        if (!failure) return std::string(verb);
        const std::string at = failure->step >= 0 ? fmt::format(" at step {}", failure->step) : "";
        const bool told = failure->reason != "interrupted" && failure->reason != "requeue";
        return fmt::format("{}{}{}", verb, at, told ? ": " + failure->message.substr(0, failure->message.find('\n')) : "");
    };
    const RunState state = folder.state();
    switch (state) {
        case RunState::fresh: break;
        case RunState::finished: return {state, "finished"};
        case RunState::running: return {state, "running: " + folder.holder()};
        case RunState::interrupted: return {state, failure_text("interrupted")};
        case RunState::failed: return {state, failure_text("failed")};
        case RunState::lost: {
            const std::string lost = folder.lost_record();
            return {state, lost.empty() ? "its process is gone" : lost};
        }
    }
    return {state};
}

std::int64_t resume_step(const RunFolder& folder) {
    const std::optional<train::Checkpoint> newest = train::newest_checkpoint(folder.file("checkpoints"));
    return newest ? newest->step : 0;
}

const char* Decision::action() const {
    if (state == RunState::fresh) return "start";
    if (state == RunState::finished) return "skip";
    return state == RunState::running ? "leave alone" : "resume";
}

RunOutcome read_outcome(const PlannedRun& run, const std::string& path) {
    const RunFolder folder(path);
    const Decision decision = decide(folder);
    RunOutcome outcome;
    outcome.folder = path;
    outcome.run_id = run.spec.id;
    outcome.human = human_name(run);
    outcome.state = decision.state;
    outcome.message = decision.reason;
    if (const auto failure = folder.failure(); failure && decision.state == RunState::failed) outcome.message = failure->message;
    if (decision.state != RunState::finished) return outcome;
    try {
        const RunRecord record = read_run(folder.file("run.h5"), results_only);
        outcome.valid_accuracy = summary_value(record, "valid_accuracy");
        outcome.test_accuracy = summary_value(record, "test_accuracy");
        outcome.best_policy = summary_value(record, "best_policy_accuracy");
        outcome.seconds = summary_value(record, "seconds");
    } catch (const Error& error) {
        outcome.state = RunState::failed;
        outcome.message = error.what();
        log_error("{}", error.what());
    }
    return outcome;
}

}  // namespace palimpsest
