#include "train/evaluate.h"

#include "core/error.h"
#include "ops/layers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

namespace palimpsest::train {
namespace {

constexpr std::int64_t not_scored = -1;

// Example ids [first, first + count).
std::vector<std::uint64_t> ids_from(std::int64_t first, std::int64_t count) {
    std::vector<std::uint64_t> ids(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::uint64_t>(first) + i;
    return ids;
}

}  // namespace

Evaluator::Evaluator(const Segments& segments, const EvalSpec& eval, std::uint64_t data_seed, std::int64_t batch, at::Device device,
                     int threads)
    : eval_(eval), seed_(data_seed), batch_(batch), device_(device), threads_(threads), shallow_(segments.shallow) {
    for (std::size_t i = 0; i < segments.valid.size(); ++i) add_quiz(0, static_cast<std::int64_t>(i), segments.valid[i]);
    for (std::size_t i = 0; i < segments.test.size(); ++i) add_quiz(1, static_cast<std::int64_t>(i), segments.test[i]);
}

void Evaluator::add_quiz(std::int64_t split, std::int64_t index, const Segment& segment) {
    Quiz quiz{split, index, split == 0 ? Stream::valid : Stream::test, segment.program, segment.examples, {}};
    const Shape& shape = quiz.program->shape();
    const std::vector<std::int64_t> upper_ends = distance_buckets(shape.length);
    const std::int64_t width = shape.vocabulary.value_tokens;

    // Overwrites and bucket of every question; their pairs in order become the slices.
    std::vector<std::pair<std::int64_t, int>> kinds;
    std::vector<std::int64_t> tokens, positions, targets, distance, overwrites;
    for (std::int64_t first = 0; first < quiz.examples; first += batch_) {
        const std::int64_t rows = std::min(batch_, quiz.examples - first);
        const auto answers = static_cast<std::size_t>(rows * shape.queries);
        tokens.resize(static_cast<std::size_t>(rows * shape.length));
        positions.resize(answers * static_cast<std::size_t>(width));
        targets.resize(answers * static_cast<std::size_t>(width));
        distance.resize(answers);
        overwrites.resize(answers);
        const BatchView view{tokens.data(), positions.data(), targets.data(), distance.data(), overwrites.data()};
        quiz.program->generate(seed_, quiz.stream, ids_from(first, rows), view, threads_);
        for (std::size_t i = 0; i < answers; ++i) kinds.emplace_back(overwrites[i], bucket_of(distance[i], upper_ends));
    }
    std::map<std::pair<std::int64_t, int>, std::int32_t> known;
    for (const auto& kind : kinds) known.emplace(kind, 0);
    for (auto& [kind, slice] : known) {
        const auto& [changes, bucket] = kind;
        slice = static_cast<std::int32_t>(slices_.size());
        Slice row{split,
                  index,
                  changes,
                  bucket == 0 ? 0 : upper_ends[static_cast<std::size_t>(bucket - 1)] + 1,
                  upper_ends[static_cast<std::size_t>(bucket)],
                  {}};
        row.label = fmt::format("{} {} overwrites={} distance={}..{}", split == 0 ? "valid" : "test", segment.label, changes,
                                row.distance_from, row.distance_to);
        slices_.push_back(std::move(row));
    }
    quiz.slice_of.reserve(kinds.size());
    for (const auto& kind : kinds) quiz.slice_of.push_back(known.at(kind));
    quizzes_.push_back(std::move(quiz));
}

void Evaluator::count(const Quiz& quiz, std::span<const std::uint64_t> examples, const std::int64_t* predicted,
                      std::vector<std::int64_t>& answers) const {
    const std::int64_t queries = quiz.program->shape().queries;
    std::vector<Answer> classes(examples.size() * static_cast<std::size_t>(queries));
    quiz.program->judge(seed_, quiz.stream, examples, predicted, classes.data(), threads_);
    const auto first = static_cast<std::size_t>(static_cast<std::int64_t>(examples.front()) * queries);
    for (std::size_t i = 0; i < classes.size(); ++i)
        ++answers[static_cast<std::size_t>(quiz.slice_of[first + i] * answer_classes + static_cast<int>(classes[i]))];
}

std::vector<EvalResult> Evaluator::evaluate(Model& model, std::int64_t step) const {
    const at::NoGradGuard no_grad;
    const std::int64_t lanes = model.parameters().lanes();
    std::vector<EvalResult> results(static_cast<std::size_t>(lanes));
    for (EvalResult& result : results) {
        result.step = step;
        result.answers.assign(slices_.size() * answer_classes, 0);
        result.loss_sum.assign(slices_.size(), 0);
    }
    for (const Quiz& quiz : quizzes_) {
        const Shape& shape = quiz.program->shape();
        const std::int64_t width = shape.vocabulary.value_tokens;
        for (std::int64_t first = 0; first < quiz.examples; first += batch_) {
            const std::int64_t rows = std::min(batch_, quiz.examples - first), scored = rows * shape.queries * width;
            at::Tensor tokens = at::empty({1, rows, shape.length}, at::kLong),
                       positions = at::empty({1, rows, shape.queries * width}, at::kLong),
                       targets = at::empty({1, scored}, at::kLong);
            BatchView view;
            view.tokens = tokens.data_ptr<std::int64_t>();
            view.positions = positions.data_ptr<std::int64_t>();
            view.targets = targets.data_ptr<std::int64_t>();
            const std::vector<std::uint64_t> ids = ids_from(first, rows);
            quiz.program->generate(seed_, quiz.stream, ids, view, threads_);

            // All lanes answer the same questions.
            const auto for_lanes = [&](const at::Tensor& x) {
                std::vector<std::int64_t> sizes = x.sizes().vec();
                sizes.front() = lanes;
                return x.to(device_).expand(sizes).contiguous();
            };
            const at::Tensor logits =
                model.logits_at(model.hidden(for_lanes(tokens), nullptr, StepContext{}), for_lanes(positions));
            const at::Tensor predicted = logits.argmax(-1).cpu().contiguous();
            const at::Tensor losses = ops::cross_entropy(logits, for_lanes(targets))
                                          .to(at::kDouble)
                                          .view({lanes, rows * shape.queries, width})
                                          .mean(2)
                                          .cpu()
                                          .contiguous();

            const std::int32_t* slice_of = quiz.slice_of.data() + first * shape.queries;
            for (std::int64_t lane = 0; lane < lanes; ++lane) {
                EvalResult& result = results[static_cast<std::size_t>(lane)];
                count(quiz, ids, predicted.data_ptr<std::int64_t>() + lane * scored, result.answers);
                const double* loss = losses.data_ptr<double>() + lane * rows * shape.queries;
                for (std::int64_t i = 0; i < rows * shape.queries; ++i)
                    result.loss_sum[static_cast<std::size_t>(slice_of[i])] += loss[i];
            }
        }
    }
    for (EvalResult& result : results) {
        result.valid_accuracy = accuracy(result.answers, 0);
        result.test_accuracy = accuracy(result.answers, 1);
    }
    return results;
}

std::vector<std::int64_t> Evaluator::policy_answers() const {
    std::vector<std::int64_t> out;
    if (!eval_.policies) return out;
    for (const Policy policy : shallow_) {
        std::vector<std::int64_t> answers(slices_.size() * answer_classes, 0), predicted;
        for (const Quiz& quiz : quizzes_) {
            const Shape& shape = quiz.program->shape();
            if (!is_shallow(policy, shape)) {
                for (const std::int32_t slice : quiz.slice_of)
                    std::fill_n(answers.begin() + slice * answer_classes, answer_classes, not_scored);
                continue;
            }
            for (std::int64_t first = 0; first < quiz.examples; first += batch_) {
                const std::vector<std::uint64_t> ids = ids_from(first, std::min(batch_, quiz.examples - first));
                predicted.resize(ids.size() * static_cast<std::size_t>(shape.queries * shape.vocabulary.value_tokens));
                quiz.program->answer(policy, seed_, quiz.stream, ids, predicted.data(), threads_);
                count(quiz, ids, predicted.data(), answers);
            }
        }
        out.insert(out.end(), answers.begin(), answers.end());
    }
    return out;
}

double Evaluator::accuracy(const std::vector<std::int64_t>& answers, std::int64_t split) const {
    // Every example of a segment has equally many answers, so the mean over its examples is its share of correct answers.
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> by_segment;  // correct, all
    for (std::size_t s = 0; s < slices_.size(); ++s) {
        if (slices_[s].split != split) continue;
        auto& [correct, all] = by_segment[eval_.mean == AccuracyMean::examples ? slices_[s].segment : 0];
        correct += answers[s * answer_classes + static_cast<std::size_t>(Answer::correct)];
        for (std::size_t c = 0; c < answer_classes; ++c) all += answers[s * answer_classes + c];
    }
    double sum = 0;
    for (const auto& [segment, counts] : by_segment) sum += static_cast<double>(counts.first) / static_cast<double>(counts.second);
    return sum / static_cast<double>(by_segment.size());
}

}  // namespace palimpsest::train
