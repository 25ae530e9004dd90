// Not a test of its own: writes a finished run to $PALIMPSEST_SAMPLE_FILE for the Python readers' tests. test_store "[sample]"
#include "sample.h"

#include <cstdlib>

#include "catch.h"

TEST_CASE("write a sample run for other readers", "[.][sample]") {
    const char* target = std::getenv("PALIMPSEST_SAMPLE_FILE");
    REQUIRE(target != nullptr);
    const palimpsest::sample::TemporaryFolder folder;
    palimpsest::sample::write_run(folder.path(), 3000);
    std::filesystem::copy_file(folder.file("run.h5"), target, std::filesystem::copy_options::overwrite_existing);
}
