#include "core/log.h"

#include "core/file.h"
#include "temporary_folder.h"

#include <algorithm>
#include <regex>
#include <thread>

#include "catch.h"

using namespace palimpsest;

namespace {

// A console in memory.
struct Console {
    explicit Console(LogLevel least = LogLevel::info, Terminal terminal = {}) { start_log(least, terminal, stream); }
    ~Console() {
        stop_log();
        std::fclose(stream);
    }
    std::string text() const {
        std::fflush(stream);
        std::string content(static_cast<std::size_t>(std::ftell(stream)), '\0');
        std::rewind(stream);
        const std::size_t read = std::fread(content.data(), 1, content.size(), stream);
        std::fseek(stream, 0, SEEK_END);
        return content.substr(0, read);
    }
    std::FILE* stream = std::tmpfile();
};

}  // namespace

TEST_CASE("messages carry their weight and the least level holds") {
    const Console console;
    log_debug("not seen");
    log_info("training {} runs", 3);
    log_warning("slow disk");
    log_error("run {} failed", "1a2b");
    CHECK(console.text() == "training 3 runs\nwarning: slow disk\nerror: run 1a2b failed\n");
}

TEST_CASE("braces in a message are text") {
    const Console console;
    log_message(LogLevel::info, "{not} a {} field");
    CHECK(console.text() == "{not} a {} field\n");
}

TEST_CASE("nothing is printed before the start and after the stop") {
    const Console console;
    stop_log();
    log_error("silent");
    CHECK(console.text().empty());
    CHECK_FALSE(show_live_line("silent"));
}

TEST_CASE("where lines cannot be redrawn there is no live line and no control character") {
    const Console console;
    CHECK_FALSE(show_live_line("step 1/10"));
    log_warning("x");
    erase_live_line();
    CHECK(console.text() == "warning: x\n");
}

TEST_CASE("a message goes above the live line, which is cut to the terminal") {
    const Console console(LogLevel::info, {true, false, 8});
    CHECK(show_live_line("±23456789"));
    CHECK(console.text() == "\r±234567\x1b[K");
    log_info("hello");
    CHECK(console.text() == "\r±234567\x1b[K\r\x1b[Khello\n\r±234567\x1b[K");
    erase_live_line();
    log_info("end");
    CHECK(console.text() == "\r±234567\x1b[K\r\x1b[Khello\n\r±234567\x1b[K\r\x1b[Kend\n");
}

TEST_CASE("warnings are coloured where the terminal allows it") {
    const Console console(LogLevel::info, {true, true, 80});
    log_warning("w");
    log_error("e");
    CHECK(console.text() == "\x1b[33;1mwarning:\x1b[0m w\n\x1b[31;1merror:\x1b[0m e\n");
}

TEST_CASE("TTY, TERM, CI and NO_COLOR decide what a terminal gets") {
    struct Case {
        bool tty;
        const char *term, *ci, *no_color;
        bool live, colour;
    };
    const std::vector<Case> cases = {
        {true, "xterm", nullptr, nullptr, true, true},  {false, "xterm", nullptr, nullptr, false, false},
        {true, "dumb", nullptr, nullptr, false, false}, {true, nullptr, nullptr, nullptr, false, false},
        {true, "xterm", "true", nullptr, false, false}, {true, "xterm", "", nullptr, true, true},
        {true, "xterm", nullptr, "1", true, false},     {true, "xterm", nullptr, "", true, true},
    };
    for (const Case& c : cases) {
        const Terminal terminal = terminal_of(c.tty, c.term, c.ci, c.no_color);
        CHECK(terminal.live == c.live);
        CHECK(terminal.colour == c.colour);
    }
}

TEST_CASE("a run's log gets its own lines and, while open, every message, stamped in UTC and at once") {
    const TemporaryFolder folder;
    const std::string path = folder / "run.log";
    const Console console;
    {
        RunLog log(path);
        log.line("step 1 {}");
        log_warning("shared");
        const std::string text = read_file(path);
        CHECK(std::regex_match(text, std::regex("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ info: step 1 \\{\\}\n"
                                                "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ warning: shared\n")));
    }
    log_warning("later");
    { RunLog(path).line("again"); }
    const std::string text = read_file(path);
    CHECK(text.find("later") == std::string::npos);
    CHECK(text.find("step 1") != std::string::npos);
    CHECK(text.find("again") != std::string::npos);
    CHECK(console.text() == "warning: shared\nwarning: later\n");
    CHECK_THROWS_WITH(RunLog(folder.path), ContainsSubstring("cannot write the log: ") && ContainsSubstring(folder.path));
}

TEST_CASE("lines of many threads stay whole") {
    const Console console(LogLevel::info, {true, false, 80});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([t] {
            for (int i = 0; i < 100; ++i) {
                show_live_line("live");
                log_info("thread {} line", t);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    erase_live_line();
    const std::string plain = std::regex_replace(console.text(), std::regex("\r(live)?\x1b\\[K"), "");
    CHECK(std::regex_match(plain, std::regex("(thread [0-3] line\n)+")));
    CHECK(std::count(plain.begin(), plain.end(), '\n') == 400);
}
