#include "sweep/progress.h"

#include "core/text.h"

#include <algorithm>
#include <numeric>

namespace palimpsest {
namespace {

std::string step_time(double seconds) {
    if (!(seconds > 0)) return "? ms";
    if (seconds < 0.0995) return fmt::format("{:.1f} ms", seconds * 1e3);
    return seconds < 0.9995 ? fmt::format("{:.0f} ms", seconds * 1e3) : fmt::format("{:.1f} s", seconds);
}

std::string remaining_time(const Progress& p) {
    if (!(p.seconds_per_step > 0)) return "?";
    return format_duration(p.seconds_per_step * static_cast<double>(std::max<std::int64_t>(0, p.steps - p.step)));
}

std::string token_rate(const Progress& p) { return (p.tokens_per_second > 0 ? format_rate(p.tokens_per_second) : "?") + " tok/s"; }

std::string bar(double share, int width) {
    const int done = static_cast<int>(share * width);
    std::string text(static_cast<std::size_t>(done), '=');
    if (done < width) text += '>';
    text.resize(static_cast<std::size_t>(width), ' ');
    return "[" + text + "] ";
}

int percent(const Progress& p) { return static_cast<int>(share_done(p) * 100); }

// One run, with less and less of what can be spared.
std::string one_run(const RunAtWork& run, int spared) {
    const Progress& p = run.progress;
    const int bar_width = spared >= 4 ? 0 : spared >= 3 ? 10 : 20;
    std::string text = fmt::format("{} {}{}{:3}%", run.place, run.name, run.name.empty() ? "" : " ", percent(p));
    if (bar_width > 0) text.insert(text.size() - 4, bar(share_done(p), bar_width));
    if (spared < 3) text += fmt::format(" | loss {:.4f}", p.loss);
    text += fmt::format(" | acc {:.3f}", p.accuracy);
    if (spared < 2) text += " | " + step_time(p.seconds_per_step);
    if (spared < 1) text += " | " + token_rate(p);
    return text + " | eta " + remaining_time(p);
}

std::string several_runs(const std::vector<RunAtWork>& runs, int spared) {
    std::vector<std::string> parts;
    for (const RunAtWork& run : runs) {
        std::string part = fmt::format("{} {}%", run.place, percent(run.progress));
        if (spared < 1) part += fmt::format(" acc {:.3f}", run.progress.accuracy);
        if (spared < 2) part += " eta " + remaining_time(run.progress);
        parts.push_back(std::move(part));
    }
    if (spared < 3) return join(parts, " | ");
    return fmt::format("{} at work", plural(static_cast<std::int64_t>(runs.size()), "run"));
}

// At most `width` columns, the last of them "…".
std::string shortened(const std::string& text, std::size_t width) {
    if (display_width(text) <= width) return text;
    std::string out;
    std::size_t used = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool starts = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
        if (starts && ++used >= width) break;
        out += text[i];
    }
    return width > 0 ? out + "…" : "";
}

}  // namespace

double share_done(const Progress& p) {
    return p.steps > 0 ? std::clamp(static_cast<double>(p.step) / static_cast<double>(p.steps), 0.0, 1.0) : 0.0;
}

std::string progress_line(const Progress& p) {
    return fmt::format("step {}/{} | loss {:.4f} | acc {:.3f} | gnorm {:.2f} | lr {:.1e} | {} | {} | eta {}", p.step, p.steps,
                       p.loss, p.accuracy, p.gradient_norm, p.lr, step_time(p.seconds_per_step), token_rate(p), remaining_time(p));
}

std::string live_line(const std::vector<RunAtWork>& runs, std::string_view sweep_left, std::size_t width) {
    constexpr int all_spared = 4;
    const std::string rest = sweep_left.empty() ? "" : fmt::format(" | sweep {}", sweep_left);
    std::string text;
    for (int spared = 0; spared <= all_spared; ++spared) {
        text = (runs.size() == 1 ? one_run(runs.front(), spared) : several_runs(runs, spared)) + rest;
        if (width == 0 || display_width(text) <= width) return text;
    }
    if (runs.size() != 1) return text;
    RunAtWork run = runs.front();  // its name gives way
    const std::size_t name = display_width(run.name), excess = display_width(text) - width;
    run.name = shortened(run.name, name > excess ? name - excess : 0);
    return one_run(run, all_spared) + rest;
}

SweepClock::SweepClock(std::vector<double> before) : done_(std::move(before)) {
    before_ = std::accumulate(done_.begin(), done_.end(), 0.0);
}

void SweepClock::at(std::size_t run, double share) { done_[run] = std::max(done_[run], share); }

std::string SweepClock::left(double seconds_since_begin) const {
    const double done = std::accumulate(done_.begin(), done_.end(), 0.0), all = static_cast<double>(done_.size());
    if (done - before_ < 0.01) return "?";
    return format_duration(seconds_since_begin * (all - done) / (done - before_));
}

ProgressReporter::ProgressReporter(std::string label, ProgressMode mode, RunLog* log, std::chrono::milliseconds interval)
    : label_(std::move(label)), mode_(mode), log_(log), interval_(interval), last_line_(std::chrono::steady_clock::now()) {}

ProgressReporter::~ProgressReporter() { erase_live_line(); }

void ProgressReporter::report(const Progress& progress) {
    const bool live = mode_ != ProgressMode::never && show_live_line(live_line({{label_, "", progress}}, "", live_width()));
    const auto now = std::chrono::steady_clock::now();
    if (progress.step < progress.steps && now - last_line_ < interval_) return;
    last_line_ = now;
    const std::string line = progress_line(progress);
    if (!live && mode_ != ProgressMode::never) log_message(LogLevel::info, line);  // the run's log hears it too
    else if (log_ != nullptr) log_->line(line);
}

}  // namespace palimpsest
