// One example in words, event by event: "write k17 v5 @0", "read k17 -> v5 @34 (distance 32, overwrites 0)". Host only.
#pragma once

#include "task/sinks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace palimpsest {

class TraceSink : public EventSink<TraceSink> {
public:
    using EventSink::EventSink;

    std::vector<std::string> take_lines() {
        flush();
        return std::move(lines_);
    }

private:
    friend EventSink;

    void on_write(std::int64_t key, std::int64_t value) { line(fmt::format("write k{} v{} @{}", key, value, position_)); }
    void on_remove(std::int64_t key) { line(fmt::format("remove k{} @{}", key, position_)); }
    void on_read(std::int64_t key, const Fact& fact) {
        line(fmt::format("read k{} -> v{} @{} (distance {}, overwrites {})", key, fact.value, position_, position_ - fact.end,
                         fact.changes));
    }
    void on_noise(std::int64_t token) { noise_.push_back(token); }

    void line(std::string text) {
        flush();
        lines_.push_back(std::move(text));
    }

    // Puts neighbouring filler on one line.
    void flush() {
        if (noise_.empty()) return;
        const std::int64_t start = position_ - static_cast<std::int64_t>(noise_.size());
        const bool blank = std::all_of(noise_.begin(), noise_.end(), [](std::int64_t token) { return token == 0; });
        lines_.push_back(blank ? fmt::format("gap {} @{}", noise_.size(), start)
                               : fmt::format("noise {} @{}", fmt::join(noise_, " "), start));
        noise_.clear();
    }

    std::vector<std::string> lines_;
    std::vector<std::int64_t> noise_;
};

}  // namespace palimpsest
