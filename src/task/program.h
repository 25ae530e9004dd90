// From a task file to a Program and a registered Task. Host only: a task file includes it under #ifndef __CUDACC__ and defines
//
//     struct NameTask {
//         using Options = …;                                        // plain struct, bound by the schema
//         using Program = …;                                        // derives from EventProgram, has emit
//         static TaskFacts facts();
//         static const Schema<Options>& schema();
//         static Compiled<Program> compile(const Options& options);  // throws Error(usage): what is wrong, what would be right
//     };
//     const RegisterTask<NameTask> registered;
#pragma once

#include "core/error.h"
#include "task/sinks.h"
#include "task/task.h"
#include "task/trace.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace palimpsest {

template <class P>
struct Compiled {
    P program;
    std::vector<std::uint32_t> table{};  // becomes program.table
};

// Calls work(begin, end) over [0, count), on several threads where there is enough to do. Rethrows the first exception.
void for_ranges(std::size_t count, std::int64_t positions_each, int threads,
                const std::function<void(std::size_t, std::size_t)>& work);

// Asserts that a program kept to its shape.
void check_fault(const std::string& task, const Shape& shape, Fault fault, std::uint64_t example, std::int64_t position);

template <class P>
class ProgramOf final : public Program {
    static_assert(std::is_base_of_v<EventProgram, P> && std::is_trivially_copyable_v<P>, "a program is handed to kernels by value");

public:
    ProgramOf(std::string task, Compiled<P> compiled)
        : task_(std::move(task)), program_(compiled.program), table_(std::move(compiled.table)) {
        program_.table = table_.data();
        program_.table_size = static_cast<std::int64_t>(table_.size());
        shape_ = program_.shape;
    }
    ProgramOf(const ProgramOf&) = delete;
    ProgramOf& operator=(const ProgramOf&) = delete;

    void generate(std::uint64_t seed, Stream stream, std::span<const std::uint64_t> examples, BatchView out,
                  int threads) const override {
        replay(seed, stream, examples, threads, [&](std::int64_t* workspace, std::size_t i) {
            return LayoutSink(program_, workspace, out, static_cast<std::int64_t>(i));
        });
    }

    void judge(std::uint64_t seed, Stream stream, std::span<const std::uint64_t> examples, const std::int64_t* predicted,
               Answer* classes, int threads) const override {
        const auto queries = static_cast<std::size_t>(shape_.queries), answers = answers_each();
        replay(seed, stream, examples, threads, [&](std::int64_t* workspace, std::size_t i) {
            return JudgeSink(program_, workspace, predicted + i * answers, classes + i * queries);
        });
    }

    void answer(Policy policy, std::uint64_t seed, Stream stream, std::span<const std::uint64_t> examples, std::int64_t* predicted,
                int threads) const override {
        const std::size_t answers = answers_each();
        replay(seed, stream, examples, threads, [&](std::int64_t* workspace, std::size_t i) {
            return PolicySink(program_, workspace, policy, Rng(seed, Stream::policy, examples[i]), predicted + i * answers);
        });
    }

    std::vector<std::string> trace(std::uint64_t seed, Stream stream, std::uint64_t example) const override {
        std::vector<std::int64_t> workspace(words());
        TraceSink sink(program_, workspace.data());
        play(sink, seed, stream, example);
        return sink.take_lines();
    }

    bool on_device() const override { return launcher() != nullptr; }
    std::span<const std::uint32_t> table() const override { return table_; }
    std::int64_t workspace_words() const override { return palimpsest::workspace_words(program_); }
    void generate_on_device(Stream stream, const DeviceBatch& batch) const override {
        if (const char* error = launcher()(program_, stream, batch))
            fail(ExitCode::run_failed, "making a batch on the GPU: {}", error);
    }

private:
    static DeviceLauncher launcher() {
        static const DeviceLauncher found = find_device_launcher(typeid(P));
        return found;
    }
    std::size_t words() const { return static_cast<std::size_t>(workspace_words()); }
    std::size_t answers_each() const { return static_cast<std::size_t>(shape_.queries * shape_.vocabulary.value_tokens); }

    template <class Sink>
    void play(Sink& sink, std::uint64_t seed, Stream stream, std::uint64_t example) const {
        Rng rng(seed, stream, example);
        program_.emit(rng, sink);
        const Fault fault = sink.finish();
        if (fault != Fault::none) check_fault(task_, shape_, fault, example, sink.position());
    }

    template <class MakeSink>
    void replay(std::uint64_t seed, Stream stream, std::span<const std::uint64_t> examples, int threads, MakeSink make_sink) const {
        for_ranges(examples.size(), shape_.length, threads, [&](std::size_t begin, std::size_t end) {
            std::vector<std::int64_t> workspace(words());
            for (std::size_t i = begin; i < end; ++i) {
                auto sink = make_sink(workspace.data(), i);
                play(sink, seed, stream, examples[i]);
            }
        });
    }

    std::string task_;
    P program_;
    std::vector<std::uint32_t> table_;
};

template <class T>
class TaskOf final : public Task {
public:
    const TaskFacts& facts() const override { return facts_; }
    const AnySchema& schema() const override { return T::schema(); }
    std::unique_ptr<Program> compile(const void* options) const override {
        return std::make_unique<ProgramOf<typename T::Program>>(facts_.name,
                                                                T::compile(*static_cast<const typename T::Options*>(options)));
    }

private:
    TaskFacts facts_ = T::facts();
};

template <class T>
struct RegisterTask {
    RegisterTask() { register_task(std::make_unique<TaskOf<T>>()); }
};

}  // namespace palimpsest
