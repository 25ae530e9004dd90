#include "sweep/record.h"

#include "core/error.h"
#include "core/thread.h"
#include "store/answers.h"
#include "sweep/machine.h"
#include "task/task.h"

#include <limits>
#include <optional>

namespace palimpsest {
namespace {

// Share of answers of one class among the test questions: over all answers, or over each segment's and then over the segments.
double test_share(const std::vector<Slice>& slices, std::span<const std::int64_t> answers, Answer answer, AccuracyMean mean) {
    const auto segments = tally(slices, answers, [&](const Slice& slice) {
        return slice.split == 1 ? std::optional(mean == AccuracyMean::examples ? slice.segment : 0) : std::nullopt;
    });
    double sum = 0;
    for (const auto& [segment, here] : segments) sum += here.share(static_cast<std::size_t>(answer));
    return segments.empty() ? not_a_number : sum / static_cast<double>(segments.size());
}

}  // namespace

RunHeader run_header(const PlannedRun& run, const PackFacts& pack, const Trainer& trainer) {
    const RunSpec& spec = run.spec;
    RunHeader header;
    header.run_id = spec.id;
    header.sweep_id = pack.sweep;
    header.title = spec.name;
    header.resolved_yaml = emit_yaml(spec.resolved);
    header.source_yaml = pack.experiment.source_yaml;
    header.overrides = pack.experiment.overrides;
    header.config = flat_config(spec.resolved);
    header.provenance = process_provenance(pack.options.command);
    header.provenance.emplace_back("device", std::string(spec.run.device == Device::cpu ? "cpu" : "cuda"));
    header.provenance.emplace_back("threads", spec.run.threads > 0 ? spec.run.threads : std::int64_t{usable_threads()});
    header.provenance.emplace_back("workers", pack.options.workers);
    header.provenance.emplace_back("lanes", static_cast<std::int64_t>(pack.lanes));
    header.provenance.emplace_back("seed", spec.seed);
    header.provenance.emplace_back("data_seed", spec.data.seed);
    header.provenance.emplace_back("deterministic", std::int64_t{spec.run.device == Device::cpu ? 1 : 0});
    header.git_diff = code_changes();
    for (const TrainMetric& metric : train_metrics) header.train_metrics.push_back({metric.name, metric.units, metric.words});
    header.slices = trainer.slices();
    for (int c = 0; c < answer_classes; ++c) header.answer_classes.push_back(to_string(static_cast<Answer>(c)));
    // Also where they are not scored: eval.policies is no part of the run's identity, and who resumes the run may score them.
    for (const Policy policy : get_task(spec.task.name).facts().shallow) header.policies.push_back(to_string(policy));
    return header;
}

double best_policy_accuracy(const std::vector<Slice>& slices, const std::vector<std::int64_t>& policy_answers, AccuracyMean mean) {
    const auto best = best_policies(slices, answer_classes, policy_answers, [](const Slice& slice) { return slice.split == 1; });
    if (best.empty()) return not_a_number;
    if (mean == AccuracyMean::answers) return sum(best).share();
    double shares = 0;
    for (const auto& [segment, share] : best) shares += share.share();
    return shares / static_cast<double>(best.size());
}

std::map<std::string, double> summary_values(const LaneResult& result, const RunRecord& record, AccuracyMean mean) {
    return {{"test_accuracy", result.last.test_accuracy},
            {"valid_accuracy", result.last.valid_accuracy},
            {"test_stale_rate", test_share(record.slices, result.last.answers, Answer::stale, mean)},
            {"best_step", static_cast<double>(result.best.step)},
            {"best_valid_accuracy", result.best.valid_accuracy},
            {"best_test_accuracy", result.best.test_accuracy},
            {"best_policy_accuracy", best_policy_accuracy(record.slices, record.policy_answers, mean)},
            {"final_loss", result.final_loss},
            {"steps", static_cast<double>(result.step)},
            {"parameters", static_cast<double>(result.parameters)},
            {"fixed_parameters", static_cast<double>(result.fixed_parameters)},
            {"state_bytes", static_cast<double>(result.state_bytes)},
            {"state_length", static_cast<double>(result.state_length)},
            {"seconds", result.seconds},
            {"tokens_per_second", result.tokens_per_second}};
}

}  // namespace palimpsest
