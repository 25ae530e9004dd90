// The window of the training log, alone.
#include "train/metric_window.h"

#include "train/optimizer.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "catch.h"

using namespace palimpsest;
using train::MetricWindow;

namespace {

using Found = std::vector<std::int64_t>;  // step, lane, cause, and so on

// What lane r has at step s: loss s + r/10, lr s/100, skipped as given; every fifth step of lane 1 has a cause and metrics that are
// NaN.
at::Tensor metrics_of(std::int64_t step, std::int64_t lanes) {
    at::Tensor out = at::zeros({lanes, static_cast<std::int64_t>(MetricWindow::columns())});
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
        float* row = out.data_ptr<float>() + lane * static_cast<std::int64_t>(MetricWindow::columns());
        const bool broken = lane == 1 && step % 5 == 0;
        const float value =
            broken ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(step) + 0.1f * static_cast<float>(lane);
        row[train_metric("loss")] = row[train_metric("accuracy")] = row[train_metric("gradient_norm")] = value;
        row[train_metric("lr")] = static_cast<float>(step) / 100;
        row[train_metric("skipped")] = lane == 1 ? static_cast<float>(step / 5) : 0;
        row[train_metrics.size()] = broken ? static_cast<float>(train::Cause::first_gradient + 3) : 0;
    }
    return out;
}

void ignore(std::int64_t, std::size_t, std::int64_t) {}

bool same(const MetricWindow::Row& a, const MetricWindow::Row& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("a row is the mean over the steps since the row before", "[window]") {
    MetricWindow window(2, at::kCPU);
    for (std::int64_t step = 1; step <= 4; ++step) window.put(metrics_of(step, 2));
    window.take(ignore);
    CHECK(window.sums(0).from == 0);
    CHECK(window.sums(0).to == 4);
    MetricWindow::Row row = window.cut_row(0);
    CHECK(row[train_metric("loss")] == 2.5f);
    CHECK(row[train_metric("lr")] == 0.04f);
    CHECK(window.sums(0).from == 4);

    for (std::int64_t step = 5; step <= 7; ++step) window.put(metrics_of(step, 2));
    window.take(ignore);
    CHECK(window.cut_row(0)[train_metric("loss")] == 6);
    // Lane 1 had no row yet. Its step 5 is no update and in no mean.
    row = window.cut_row(1);
    CHECK(row[train_metric("loss")] == Approx((1.1 + 2.1 + 3.1 + 4.1 + 6.1 + 7.1) / 6).epsilon(1e-6));
    CHECK(row[train_metric("lr")] == 0.07f);
    CHECK(row[train_metric("skipped")] == 1);
}

TEST_CASE("a mean over no update is NaN, the last values stand", "[window]") {
    MetricWindow window(2, at::kCPU);
    window.restart(4);
    window.put(metrics_of(5, 2));
    window.take(ignore);
    const MetricWindow::Row row = window.cut_row(1);
    CHECK(std::isnan(row[train_metric("loss")]));
    CHECK(row[train_metric("lr")] == 0.05f);
    CHECK(row[train_metric("skipped")] == 1);
}

TEST_CASE("when steps are taken changes no row and hides no step", "[window]") {
    // However often the buffer is emptied, and however short it is: the same rows bit for bit, each step with a cause told once.
    const auto rows = [](std::int64_t capacity, std::int64_t every, Found& found) {
        MetricWindow window(3, at::kCPU, capacity);
        std::vector<MetricWindow::Row> out;
        const auto hear = [&](std::int64_t step, std::size_t lane, std::int64_t cause) {
            CHECK(window.sums(lane).to == step);
            found.insert(found.end(), {step, static_cast<std::int64_t>(lane), cause});
        };
        for (std::int64_t step = 1; step <= 40; ++step) {
            if (window.full()) window.take(hear);
            window.put(metrics_of(step, 3));
            if (step % every == 0 || step % 13 == 0) window.take(hear);
            if (step % 13 == 0)
                for (std::size_t lane = 0; lane < 3; ++lane) out.push_back(window.cut_row(lane));
        }
        window.take(hear);
        return out;
    };
    Found expected;
    for (std::int64_t step = 5; step <= 40; step += 5) expected.insert(expected.end(), {step, 1, train::Cause::first_gradient + 3});
    Found whole_found;
    const std::vector<MetricWindow::Row> whole = rows(64, 1000, whole_found);
    CHECK(whole.size() == 9);
    CHECK(whole_found == expected);
    for (const auto& [capacity, every] : {std::pair<std::int64_t, std::int64_t>{1, 1000}, {4, 1000}, {7, 3}, {64, 1}}) {
        Found found;
        const std::vector<MetricWindow::Row> divided = rows(capacity, every, found);
        CHECK(found == expected);
        REQUIRE(divided.size() == whole.size());
        for (std::size_t i = 0; i < whole.size(); ++i) CHECK(same(divided[i], whole[i]));
    }
}

TEST_CASE("a closed lane takes no more, also in the middle of what was put", "[window]") {
    MetricWindow window(2, at::kCPU);
    for (std::int64_t step = 1; step <= 20; ++step) window.put(metrics_of(step, 2));
    Found found;
    window.take([&](std::int64_t step, std::size_t lane, std::int64_t cause) {
        found.insert(found.end(), {step, static_cast<std::int64_t>(lane), cause});
        CHECK(window.cut_row(lane)[train_metric("loss")] == Approx(2.6));  // steps 1 to 4
        window.freeze(lane);
    });
    CHECK(found == Found{5, 1, train::Cause::first_gradient + 3});
    CHECK(window.sums(1).to == 5);
    CHECK(window.sums(0).to == 20);
}

TEST_CASE("a window goes on where another one stood", "[window]") {
    MetricWindow whole(2, at::kCPU);
    for (std::int64_t step = 1; step <= 12; ++step) whole.put(metrics_of(step, 2));
    whole.take(ignore);
    MetricWindow first(2, at::kCPU), second(2, at::kCPU);
    for (std::int64_t step = 1; step <= 6; ++step) first.put(metrics_of(step, 2));
    first.take(ignore);
    second.restart(6);
    for (std::size_t lane = 0; lane < 2; ++lane) second.restore(lane, first.sums(lane));
    for (std::int64_t step = 7; step <= 12; ++step) second.put(metrics_of(step, 2));
    second.take(ignore);
    for (std::size_t lane = 0; lane < 2; ++lane) {
        CHECK(second.sums(lane).from == 0);
        CHECK(same(second.cut_row(lane), whole.cut_row(lane)));
    }
}

TEST_CASE("a lane that ended before the others keeps its own step", "[window]") {
    MetricWindow first(2, at::kCPU), second(2, at::kCPU);
    for (std::int64_t step = 1; step <= 6; ++step) {
        first.put(metrics_of(step, 2));
        first.take(ignore);
        if (step == 4) first.freeze(1);
    }
    CHECK(first.sums(0).to == 6);
    CHECK(first.sums(1).to == 4);
    second.restart(6);
    for (std::size_t lane = 0; lane < 2; ++lane) second.restore(lane, first.sums(lane));
    second.freeze(1);
    CHECK(second.sums(1).to == 4);
    CHECK(same(second.cut_row(1), first.cut_row(1)));
    MetricWindow::Sums ahead;
    ahead.from = 6;
    ahead.to = 7;
    CHECK_THROWS_AS(second.restore(0, ahead), InternalError);
}
