#include "train/operator_times.h"

#include "core/error.h"
#include "ops/shape.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <memory>

namespace palimpsest::train {
namespace {

// Of this thread: where others use the machine too, the clock on the wall tells of them.
double processor_milliseconds() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

struct Open : at::ObserverContext {
    std::string name;
    double began = 0;
};

struct Tally {
    std::map<std::string, OperatorTime> by_name;
    std::vector<double> inner;  // of every open operator: time of those inside it
};
Tally* tally = nullptr;  // LibTorch calls functions, not objects

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    auto open = std::make_unique<Open>();
    open->name = function.name();
    if (open->name.starts_with("aten::")) {  // others' inputs may be gone
        for (const c10::IValue& input : function.inputs())
            if (input.isTensor() && input.toTensor().defined()) open->name.append(" ").append(ops::shape_text(input.toTensor()));
    }
    tally->inner.push_back(0);
    open->began = processor_milliseconds();
    return open;
}

void end(const at::RecordFunction&, at::ObserverContext* context) {
    const auto& open = static_cast<const Open&>(*context);
    const double all = processor_milliseconds() - open.began;
    OperatorTime& time = tally->by_name[open.name];
    time.milliseconds += all - tally->inner.back();
    ++time.calls;
    tally->inner.pop_back();
    if (!tally->inner.empty()) tally->inner.back() += all;
}

}  // namespace

std::vector<OperatorTime> operator_times(const std::function<void()>& work) {
    PALIMPSEST_ASSERT(tally == nullptr, "operators are being timed already");
    Tally mine;
    tally = &mine;
    const at::CallbackHandle handle = at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end).needsInputs(true));
    const std::shared_ptr<void> restore(nullptr, [handle](void*) {
        at::removeCallback(handle);
        tally = nullptr;
    });
    const double began = processor_milliseconds();
    work();
    OperatorTime& rest = mine.by_name[no_operator];
    rest.milliseconds = processor_milliseconds() - began;
    for (const auto& [name, time] : mine.by_name)
        if (&time != &rest) rest.milliseconds -= time.milliseconds;
    std::vector<OperatorTime> out;
    for (auto& [name, time] : mine.by_name) {
        out.push_back(time);
        out.back().name = name;
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const OperatorTime& a, const OperatorTime& b) { return a.milliseconds > b.milliseconds; });
    return out;
}

}  // namespace palimpsest::train
