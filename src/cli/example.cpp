#include "cli/example.h"

#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace palimpsest::cli {

WorkedExample work_example(const Program& program, std::uint64_t seed) {
    const Shape& shape = program.shape();
    WorkedExample example;
    example.shape = shape;
    const auto answers = static_cast<std::size_t>(shape.queries * shape.vocabulary.value_tokens);
    example.tokens.resize(static_cast<std::size_t>(shape.length));
    example.positions.resize(answers);
    example.targets.resize(answers);
    BatchView view;
    view.tokens = example.tokens.data();
    view.positions = example.positions.data();
    view.targets = example.targets.data();
    const std::uint64_t first = 0;
    program.generate(seed, Stream::train, {&first, 1}, view);
    example.events = program.trace(seed, Stream::train, first);
    return example;
}

std::string token_name(std::int64_t token, const Vocabulary& vocabulary) {
    if (token == vocabulary.removed) return "gone";
    if (token >= vocabulary.value_first && token < vocabulary.value_first + vocabulary.values)
        return fmt::format("v{}", token - vocabulary.value_first);
    if (token >= vocabulary.key_first && token < vocabulary.key_first + vocabulary.keys)
        return fmt::format("k{}", token - vocabulary.key_first);
    return token == 0 ? "." : fmt::format("#{}", token);
}

std::string token_rows(const WorkedExample& example, std::size_t width) {
    const std::size_t length = example.tokens.size();
    std::vector<std::string> names, answers(length);
    std::size_t cell = std::to_string(length).size();
    for (const std::int64_t token : example.tokens) names.push_back(token_name(token, example.shape.vocabulary));
    for (std::size_t i = 0; i < example.positions.size(); ++i)
        answers[static_cast<std::size_t>(example.positions[i])] = token_name(example.targets[i], example.shape.vocabulary);
    for (std::size_t i = 0; i < length; ++i) cell = std::max({cell, names[i].size(), answers[i].size()});

    const std::size_t label = 10, fitting = std::max<std::size_t>(1, (width - label) / (cell + 1));
    const std::size_t columns = fitting >= 8 ? fitting / 8 * 8 : fitting;
    std::string text;
    for (std::size_t first = 0; first < length; first += columns) {
        const std::size_t end = std::min(length, first + columns);
        const auto row = [&](const char* name, const auto& cell_of) {
            std::string line = fmt::format("{:<{}}", name, label);
            for (std::size_t i = first; i < end; ++i) line += fmt::format("{:>{}} ", cell_of(i), cell);
            line.erase(line.find_last_not_of(' ') + 1);
            text += line + "\n";
        };
        if (first > 0) text += "\n";
        row("position", [](std::size_t i) { return i; });
        row("token", [&](std::size_t i) { return names[i]; });
        const bool any =
            std::any_of(answers.begin() + static_cast<std::ptrdiff_t>(first), answers.begin() + static_cast<std::ptrdiff_t>(end),
                        [](const std::string& answer) { return !answer.empty(); });
        if (any) row("answer", [&](std::size_t i) { return answers[i]; });
    }
    return text;
}

}  // namespace palimpsest::cli
