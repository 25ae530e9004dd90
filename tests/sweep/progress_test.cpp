#include "sweep/progress.h"

#include "core/file.h"
#include "core/text.h"
#include "temporary_folder.h"

#include <cstdio>

#include "catch.h"

using namespace palimpsest;

namespace {

Progress example() {
    Progress p;
    p.step = 1200;
    p.steps = 20000;
    p.loss = 0.69314;
    p.accuracy = 0.5124;
    p.gradient_norm = 0.8449;
    p.lr = 3e-4;
    p.seconds_per_step = 0.0019149;
    p.tokens_per_second = 34512;
    return p;
}

std::string content(std::FILE* file) {
    std::fflush(file);
    std::rewind(file);
    std::string text;
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
    return text;
}

std::size_t count(const std::string& text, const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
}

}  // namespace

TEST_CASE("a plain line of progress") {
    Progress p = example();
    CHECK(progress_line(p) ==
          "step 1200/20000 | loss 0.6931 | acc 0.512 | gnorm 0.84 | lr 3.0e-04 | 1.9 ms | 34.5k tok/s | eta 0:36");
    SECTION("what is not known yet is a question mark") {
        p.seconds_per_step = p.tokens_per_second = 0;
        CHECK(progress_line(p) == "step 1200/20000 | loss 0.6931 | acc 0.512 | gnorm 0.84 | lr 3.0e-04 | ? ms | ? tok/s | eta ?");
    }
    SECTION("slow steps") {
        p.seconds_per_step = 0.25;
        CHECK_THAT(progress_line(p), ContainsSubstring("| 250 ms |"));
        p.seconds_per_step = 2.04;
        CHECK_THAT(progress_line(p), ContainsSubstring("| 2.0 s |"));
        CHECK_THAT(progress_line(p), ContainsSubstring("eta 10:39:12"));
    }
}

TEST_CASE("the live line has a bar") {
    Progress p = example();
    CHECK(live_line({{"[2/8]", "delta", p}}, "", 0) ==
          "[2/8] delta [=>                  ]   6% | loss 0.6931 | acc 0.512 | 1.9 ms | 34.5k tok/s | eta 0:36");
    CHECK(live_line({{"run", "", p}}, "", 0) ==
          "run [=>                  ]   6% | loss 0.6931 | acc 0.512 | 1.9 ms | 34.5k tok/s | eta 0:36");
    p.step = p.steps;
    CHECK_THAT(live_line({{"x", "", p}}, "", 0),
               ContainsSubstring("x [====================] 100% |") && ContainsSubstring("eta 0:00"));
}

TEST_CASE("the live line keeps the times left however narrow the terminal is") {
    const RunAtWork run = {"[2/8]", "delta-lr=0.001-seed=3", example()};
    CHECK(live_line({run}, "12:10", 120) ==
          "[2/8] delta-lr=0.001-seed=3 [=>                  ]   6% | loss 0.6931 | acc 0.512 | 1.9 ms | eta 0:36 | sweep 12:10");
    CHECK(live_line({run}, "12:10", 107) ==
          "[2/8] delta-lr=0.001-seed=3 [=>                  ]   6% | loss 0.6931 | acc 0.512 | eta 0:36 | sweep 12:10");
    CHECK(live_line({run}, "12:10", 79) == "[2/8] delta-lr=0.001-seed=3   6% | acc 0.512 | eta 0:36 | sweep 12:10");
    CHECK(live_line({run}, "12:10", 60) == "[2/8] delta-lr=0.…   6% | acc 0.512 | eta 0:36 | sweep 12:10");
    for (std::size_t width = 50; width <= 160; ++width) {
        const std::string line = live_line({run}, "12:10", width);
        CHECK(display_width(line) <= width);
        CHECK_THAT(line, ContainsSubstring("eta 0:36 | sweep 12:10"));
    }
}

TEST_CASE("several runs share the live line") {
    std::vector<RunAtWork> runs = {{"[1/8]", "a", example()}, {"[2-3/8]", "b", example()}};
    CHECK(live_line(runs, "1:00", 0) == "[1/8] 6% acc 0.512 eta 0:36 | [2-3/8] 6% acc 0.512 eta 0:36 | sweep 1:00");
    CHECK(live_line(runs, "1:00", 60) == "[1/8] 6% eta 0:36 | [2-3/8] 6% eta 0:36 | sweep 1:00");
    CHECK(live_line(runs, "1:00", 40) == "[1/8] 6% | [2-3/8] 6% | sweep 1:00");
    CHECK(live_line(runs, "1:00", 30) == "2 runs at work | sweep 1:00");
}

TEST_CASE("the time left for a sweep is that of what was done since it began") {
    SweepClock clock({0, 0.5, 1, 0});
    CHECK(clock.left(5) == "?");
    clock.at(1, 0.5);
    CHECK(clock.left(5) == "?");
    clock.at(0, 0.25);
    CHECK(clock.left(10) == "1:30");  // 0.25 in 10 s; 2.25 are left
    clock.at(0, 0.1);                 // never back
    clock.at(0, 1);
    clock.at(1, 1);
    CHECK(clock.left(30) == "0:20");
    clock.at(3, 1);
    CHECK(clock.left(45) == "0:00");
}

TEST_CASE("reports: a live line on a terminal, lines at an interval elsewhere, and the log in any case") {
    const TemporaryFolder folder;
    std::FILE* console = std::tmpfile();
    REQUIRE(console != nullptr);
    Terminal terminal;
    terminal.width = 200;
    const auto report = [&](ProgressMode mode, bool live, std::chrono::milliseconds interval) {
        terminal.live = live;
        start_log(LogLevel::info, terminal, console);
        {
            RunLog log(folder / "run.log");
            ProgressReporter reporter("run", mode, &log, interval);
            Progress p = example();
            for (p.step = 100; p.step <= 1000; p.step += 100) reporter.report(p);
            p.step = p.steps;
            reporter.report(p);
        }
        stop_log();
        return content(console);
    };
    using std::chrono::hours;
    using std::chrono::milliseconds;

    SECTION("elsewhere: no escape codes, and one line per interval but for the last step") {
        const std::string text = report(ProgressMode::automatic, false, hours(1));
        CHECK(text == "step 20000/20000 | loss 0.6931 | acc 0.512 | gnorm 0.84 | lr 3.0e-04 | 1.9 ms | 34.5k tok/s | eta 0:00\n");
        CHECK(count(read_file(folder / "run.log"), "step ") == 1);
    }
    SECTION("every report where the interval is nothing") {
        CHECK(count(report(ProgressMode::automatic, false, milliseconds(0)), "step ") == 11);
        CHECK(count(read_file(folder / "run.log"), "step ") == 11);
    }
    SECTION("on a terminal: redrawn, erased at the end, plain in the log") {
        const std::string text = report(ProgressMode::automatic, true, hours(1));
        CHECK(count(text, "run [") == 11);
        CHECK(count(text, "\r") >= 11);
        CHECK(count(text, "\n") == 0);
        CHECK(text.substr(text.size() - 4) == "\r\x1b[K");
        const std::string log = read_file(folder / "run.log");
        CHECK(count(log, "step 20000/20000") == 1);
        CHECK(count(log, "\x1b") == 0);
    }
    SECTION("never: the log alone") {
        CHECK(report(ProgressMode::never, true, milliseconds(0)).empty());
        CHECK(count(read_file(folder / "run.log"), "step ") == 11);
    }
    std::fclose(console);
}
