#include "task/program.h"

#include "core/error.h"

#include <algorithm>
#include <exception>
#include <thread>

namespace palimpsest {

void for_ranges(std::size_t count, std::int64_t positions_each, int threads,
                const std::function<void(std::size_t, std::size_t)>& work) {
    // Below this number a thread costs more than it saves (some 30 us to start one, 10 to 90 ns a position).
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
    const auto refuse = [&](const std::string& what) {
        fail(ExitCode::usage, "task '{}' breaks its own shape in example {}: {}. Mend emit or compile in tasks/{}.cpp", task,
             example, what, task);
    };
    switch (fault) {
        case Fault::none: return;
        case Fault::length:
            if (position < shape.length) refuse(fmt::format("emit lays out {} positions of the length {}", position, shape.length));
            refuse(fmt::format("emit lays out more than the {} positions of the length", shape.length));
            return;
        case Fault::queries: refuse(fmt::format("emit must read exactly {} times (shape.queries)", shape.queries)); return;
        case Fault::writes: refuse(fmt::format("emit writes and removes more than {} times (shape.writes)", shape.writes)); return;
        case Fault::unbound_read: refuse("emit reads a key that holds no value"); return;
        case Fault::no_removed_token: refuse("emit removes a key, but vocabulary.removed is not set"); return;
    }
}

}  // namespace palimpsest
