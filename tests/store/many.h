// Made-up runs, as their files would have them.
#pragma once

#include "core/error.h"
#include "store/runs.h"

#include <map>
#include <string>
#include <vector>

#include "catch.h"

namespace palimpsest::sample {

using Words = std::vector<std::string>;

// A run as its file would have it; no summary: it has not come to its end.
inline CollectedRun run(const std::string& mixer, double lr, std::int64_t seed, std::map<std::string, double> summary) {
    CollectedRun out;
    out.run = {fmt::format("{}-{}-{}", mixer, lr, seed),
               "",
               {{"model.mixer", mixer}, {"train.lr", fmt::format("{}", lr)}, {"seed", std::to_string(seed)}}};
    out.state = summary.empty() ? RunState::running : RunState::finished;
    out.present = true;
    out.record.run_id = out.run.run_id;
    out.record.config = {{"model.mixer", mixer}, {"model.width", std::int64_t{64}}, {"train.lr", lr}, {"seed", seed}};
    if (mixer == "delta") out.record.config.emplace_back("mixers.delta.heads", std::int64_t{2});
    out.record.summary = std::move(summary);
    return out;
}

inline std::map<std::string, double> scores(double valid, double test) {
    return {{"valid_accuracy", valid}, {"test_accuracy", test}};
}

// delta is best at 0.003 on the valid questions, and at 0.01 on the test questions.
inline std::vector<CollectedRun> grid() {
    return {run("softmax", 1e-3, 1, scores(0.5, 0.5)), run("softmax", 1e-3, 2, scores(0.7, 0.7)),
            run("softmax", 3e-3, 1, scores(0.4, 0.4)), run("softmax", 3e-3, 2, {}),
            run("delta", 1e-3, 1, scores(0.6, 0.6)),   run("delta", 3e-3, 1, scores(0.9, 0.8)),
            run("delta", 3e-3, 2, scores(0.7, 0.6)),   run("delta", 1e-2, 1, scores(0.7, 0.95))};
}

template <class Action>
std::string error_of(const Action& action) {
    try {
        action();
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::usage);
        return error.what();
    }
    return "no error";
}

inline Words ids(const std::vector<CollectedRun>& runs) {
    Words out;
    for (const CollectedRun& run : runs) out.push_back(run.run.run_id);
    return out;
}

}  // namespace palimpsest::sample
