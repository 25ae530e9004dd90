#include "sweep/progress.h"

#include "core/text.h"

#include <algorithm>
#include <cmath>

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

double share_done(const Progress& p) {
    return p.steps > 0 ? std::clamp(static_cast<double>(p.step) / static_cast<double>(p.steps), 0.0, 1.0) : 0.0;
}

std::string rates(const Progress& p) {
    const std::string tokens = p.tokens_per_second > 0 ? format_rate(p.tokens_per_second) : "?";
    return fmt::format("{} | {} tok/s | eta {}", step_time(p.seconds_per_step), tokens, remaining_time(p));
}

}  // namespace

std::string progress_line(const Progress& p) {
    return fmt::format("step {}/{} | loss {:.4f} | acc {:.3f} | gnorm {:.2f} | lr {:.1e} | {}", p.step, p.steps, p.loss, p.accuracy,
                       p.gradient_norm, p.lr, rates(p));
}

std::string live_line(std::string_view label, const Progress& p) {
    constexpr int width = 20;
    const double share = share_done(p);
    const int done = static_cast<int>(share * width);
    std::string bar(static_cast<std::size_t>(done), '=');
    if (done < width) bar += '>';
    bar.resize(width, ' ');
    return fmt::format("{} [{}] {:3}% | loss {:.4f} | acc {:.3f} | {}", label, bar, static_cast<int>(share * 100), p.loss, p.accuracy, rates(p));
}

std::string short_line(std::string_view label, const Progress& p) {
    return fmt::format("{} {}% acc {:.3f} eta {}", label, static_cast<int>(share_done(p) * 100), p.accuracy, remaining_time(p));
}

ProgressReporter::ProgressReporter(std::string label, ProgressMode mode, RunLog* log, std::chrono::milliseconds interval)
    : label_(std::move(label)), mode_(mode), log_(log), interval_(interval), last_line_(std::chrono::steady_clock::now()) {}

ProgressReporter::~ProgressReporter() { erase_live_line(); }

void ProgressReporter::report(const Progress& progress) {
    if (listener_) listener_(progress);
    const bool live = mode_ != ProgressMode::never && show_live_line(live_line(label_, progress));
    const auto now = std::chrono::steady_clock::now();
    if (progress.step < progress.steps && now - last_line_ < interval_) return;
    last_line_ = now;
    const std::string line = progress_line(progress);
    if (!live && mode_ != ProgressMode::never) log_message(LogLevel::info, line);  // the run's log hears it too
    else if (log_ != nullptr) log_->line(line);
}

}  // namespace palimpsest
