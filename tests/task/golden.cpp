// The data law's golden fingerprints: tokens, positions and targets of the first examples of every option set, on every machine.
// A changed line means that results are no longer comparable with older ones. PALIMPSEST_REGENERATE=1 writes the file anew.
#include "source_dir.h"
#include "support.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace palimpsest {
using namespace testing;

TEST_CASE("fingerprints of all option sets are the golden ones", "[task]") {
    const std::string path = source_dir() + "/tests/golden/fingerprints.txt";
    std::string text = "# FNV-1a of 64 examples of seed 1: train, test, task and options. Written by tests/task/golden.cpp.\n";
    for (const Case& c : chosen_cases()) {
        const auto program = compile(c);
        text += fmt::format("{:016x} {:016x} {}\n", fingerprint(*program, 1, Stream::train, 64),
                            fingerprint(*program, 1, Stream::test, 64), c.name());
    }
    if (std::getenv("PALIMPSEST_REGENERATE")) std::ofstream(path) << text;

    std::ifstream file(path);
    REQUIRE(file);
    std::istringstream now(text);
    std::string golden_line, line;
    while (std::getline(now, line)) {
        REQUIRE(std::getline(file, golden_line));
        CHECK(line == golden_line);
    }
    CHECK_FALSE(std::getline(file, golden_line));
    for (const std::string& task : task_names()) {
        if (std::none_of(chosen_cases().begin(), chosen_cases().end(), [&](const Case& c) { return c.task == task; }))
            WARN("the examples of task '"
                 << task << "' are not pinned: give it option sets in tests/task/support.h and write the file anew");
    }
}

}  // namespace palimpsest
