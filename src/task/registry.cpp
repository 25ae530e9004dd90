#include "config/diagnostics.h"
#include "core/error.h"
#include "core/hash.h"
#include "task/task.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <typeindex>

namespace palimpsest {

namespace {

// The registry is a static of a function, because registrations of other files run before main, in any order.
std::map<std::string, std::unique_ptr<Task>, std::less<>>& registry() {
    static std::map<std::string, std::unique_ptr<Task>, std::less<>> tasks;
    return tasks;
}

std::map<std::type_index, DeviceLauncher>& launchers() {
    static std::map<std::type_index, DeviceLauncher> by_program;
    return by_program;
}

std::uint64_t add(std::uint64_t hash, const std::vector<std::int64_t>& words) {
    return fnv1a(words.data(), words.size() * sizeof(words[0]), hash);
}

}  // namespace

const char* to_string(Answer answer) {
    switch (answer) {
        case Answer::correct: return "correct";
        case Answer::stale: return "stale";
        case Answer::other_current: return "other_current";
        case Answer::other_former: return "other_former";
        case Answer::unbound: return "unbound";
        case Answer::not_a_value: return "not_a_value";
    }
    return "?";
}

const char* to_string(Policy policy) {
    switch (policy) {
        case Policy::last_written: return "last_written";
        case Policy::first_of_key: return "first_of_key";
        case Policy::random_of_key: return "random_of_key";
        case Policy::random_of_row: return "random_of_row";
        case Policy::majority_of_row: return "majority_of_row";
    }
    return "?";
}

bool is_shallow(Policy policy, const Shape& shape) {
    return shape.max_overwrites > 0 || (policy != Policy::first_of_key && policy != Policy::random_of_key);
}

void register_device_launcher(const std::type_info& program, DeviceLauncher launcher) { launchers()[program] = launcher; }

DeviceLauncher find_device_launcher(const std::type_info& program) {
    const auto found = launchers().find(program);
    return found == launchers().end() ? nullptr : found->second;
}

std::vector<std::string> task_names() {
    std::vector<std::string> names;
    for (const auto& [name, task] : registry()) names.push_back(name);
    return names;
}

const Task* find_task(std::string_view name) {
    const auto found = registry().find(name);
    return found == registry().end() ? nullptr : found->second.get();
}

const Task& get_task(std::string_view name) {
    if (const Task* task = find_task(name)) return *task;
    const std::vector<std::string> names = task_names();
    fail(ExitCode::usage, "no task '{}'{}; the tasks are {}", name, did_you_mean(name, names), fmt::join(names, ", "));
}

void register_task(std::unique_ptr<Task> task) {
    const std::string name = task->facts().name;
    const bool added = registry().emplace(name, std::move(task)).second;
    PALIMPSEST_ASSERT(added, "two tasks are called {}", name);
}

std::uint64_t fingerprint(const Program& program, std::uint64_t seed, Stream stream, std::int64_t count) {
    const Shape& shape = program.shape();
    const auto answers = static_cast<std::size_t>(shape.queries * shape.vocabulary.value_tokens);
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(shape.length)), positions(answers), targets(answers);
    BatchView row;
    row.tokens = tokens.data();
    row.positions = positions.data();
    row.targets = targets.data();
    std::uint64_t hash = fnv1a_start;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto example = static_cast<std::uint64_t>(i);
        program.generate(seed, stream, {&example, 1}, row);
        hash = add(hash, tokens);
        hash = add(hash, positions);
        hash = add(hash, targets);
    }
    return hash;
}

std::vector<std::int64_t> distance_buckets(std::int64_t length) {
    std::vector<std::int64_t> upper_ends{1};
    while (upper_ends.back() < length - 1) upper_ends.push_back(2 * upper_ends.back());
    return upper_ends;
}

int bucket_of(std::int64_t distance, const std::vector<std::int64_t>& upper_ends) {
    const auto found = std::lower_bound(upper_ends.begin(), upper_ends.end(), distance);
    PALIMPSEST_ASSERT(found != upper_ends.end(), "distance {} is beyond the last bucket, {}", distance, upper_ends.back());
    return static_cast<int>(found - upper_ends.begin());
}

}  // namespace palimpsest
