#include "task/program.h"

#include "core/error.h"

#include <algorithm>
#include <exception>
#include <thread>

namespace palimpsest {

void for_ranges(std::size_t count, std::int64_t positions_each, int threads, const std::function<void(std::size_t, std::size_t)>& work) {
    // Below this a thread costs more than it saves (some 30 us to start one, 10 to 90 ns a position).
    constexpr std::size_t positions_per_thread = 16'000;
    const std::size_t useful = count * static_cast<std::size_t>(positions_each) / positions_per_thread;
    const std::size_t parts = std::clamp<std::size_t>(useful, 1, static_cast<std::size_t>(std::max(threads, 1)));
    if (parts == 1) return work(0, count);

    std::vector<std::exception_ptr> failures(parts);
    {
        std::vector<std::jthread> workers;
        for (std::size_t part = 0; part < parts; ++part) {
            workers.emplace_back([&, part] {
                try {
                    work(count * part / parts, count * (part + 1) / parts);
                } catch (...) {
                    failures[part] = std::current_exception();
                }
            });
        }
    }
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

void check_fault(const std::string& task, const Shape& shape, Fault fault, std::uint64_t example, std::int64_t position) {
    PALIMPSEST_ASSERT(fault != Fault::length, "task {}, example {}: laid out {} positions, or tried to lay out more; its length is {}", task,
                      example, position, shape.length);
    PALIMPSEST_ASSERT(fault != Fault::queries, "task {}, example {}: it must read exactly {} times", task, example, shape.queries);
    PALIMPSEST_ASSERT(fault != Fault::writes, "task {}, example {}: more writes than the {} of its shape", task, example, shape.writes);
    PALIMPSEST_ASSERT(fault != Fault::unbound_read, "task {}, example {}: reads a key that holds no value", task, example);
    PALIMPSEST_ASSERT(fault != Fault::no_removed_token, "task {}, example {}: removes, but vocabulary.removed is not set", task, example);
}

}  // namespace palimpsest
