#include "train/checkpoint.h"

#include "core/error.h"
#include "core/file.h"
#include "temporary_folder.h"

#include "catch.h"

using namespace palimpsest;
using namespace palimpsest::train;

namespace {

Checkpoint sample() {
    Checkpoint out;
    out.step = 120;
    out.facts = {{"seed", "3"}, {"message", "two words"}, {"empty", ""}};
    out.arrays = {{"parameter/a", at::arange(6, at::kFloat).view({2, 3})},
                  {"parameter/scalar", at::full({}, 2.5, at::kDouble)},
                  {"counter/n", at::arange(4, at::kLong)},
                  {"log/window", at::empty({0, 6}, at::kFloat)}};
    return out;
}

}  // namespace

TEST_CASE("a checkpoint is read back as it was written", "[train][checkpoint]") {
    const TemporaryFolder folder;
    const std::string path = folder / "a.ckpt";
    write_checkpoint(path, sample());
    const Checkpoint back = read_checkpoint(path), wrote = sample();
    CHECK(back.step == 120);
    CHECK(back.facts == wrote.facts);
    CHECK(back.fact("message") == "two words");
    CHECK(back.fact("absent").empty());
    REQUIRE(back.arrays.size() == wrote.arrays.size());
    for (std::size_t i = 0; i < wrote.arrays.size(); ++i) {
        CHECK(back.arrays[i].first == wrote.arrays[i].first);
        CHECK(back.arrays[i].second.scalar_type() == wrote.arrays[i].second.scalar_type());
        CHECK(back.arrays[i].second.equal(wrote.arrays[i].second));
    }
    CHECK(read_file(path).starts_with("palimpsest-checkpoint 2\nstep 120\nfact seed 3\n"));
}

TEST_CASE("damage is noticed at every byte", "[train][checkpoint]") {
    const TemporaryFolder folder;
    const std::string path = folder / "a.ckpt";
    write_checkpoint(path, sample());
    const std::string good = read_file(path);
    for (std::size_t i = 0; i < good.size(); i += 7) {
        std::string bad = good;
        bad[i] = static_cast<char>(bad[i] ^ 0x10);
        write_file_atomic(path, bad);
        CHECK_THROWS_AS(read_checkpoint(path), Error);
        write_file_atomic(path, good.substr(0, i));
        CHECK_THROWS_AS(read_checkpoint(path), Error);
    }
    std::string bad = good;
    bad[good.size() - 20] ^= 1;
    write_file_atomic(path, bad);
    CHECK_THROWS_WITH(read_checkpoint(path), "checkpoint " + path + " is damaged: its checksum is wrong");
    write_file_atomic(path, "palimpsest-checkpoint 3\n");
    CHECK_THROWS_WITH(read_checkpoint(path),
                      "checkpoint " + path +
                          " was written in format 3; this program reads formats 1 to 2. Go on with a program that "
                          "reads it, or move the file away: then the run goes on from an older one, or begins anew");
}

TEST_CASE("arrays that do not fit are listed, all of them", "[train][checkpoint]") {
    const Checkpoint checkpoint = sample();
    const std::vector<std::string> lines =
        differences(checkpoint, {{"parameter/a", at::zeros({3, 2}, at::kFloat)}, {"parameter/new", at::zeros({4}, at::kFloat)}});
    CHECK(lines == std::vector<std::string>{"'parameter/a' is float [2, 3] in the checkpoint; expected float [3, 2]",
                                            "'parameter/new' is not in the checkpoint; expected float [4]",
                                            "'parameter/scalar' is double [] in the checkpoint; not expected"});
    CHECK(differences(checkpoint, checkpoint.arrays).empty());
}

TEST_CASE("the newest checkpoints stay", "[train][checkpoint]") {
    const TemporaryFolder folder;
    CHECK(checkpoint_steps(folder / "absent").empty());
    for (const std::int64_t step : {1000000000, 5, 70}) write_checkpoint(checkpoint_path(folder.path, step), sample());
    write_file_atomic(folder / "step-note.ckpt", "not one of them");
    CHECK(checkpoint_steps(folder.path) == std::vector<std::int64_t>{5, 70, 1000000000});
    rotate_checkpoints(folder.path, 1000000000, 2);
    CHECK(checkpoint_steps(folder.path) == std::vector<std::int64_t>{70, 1000000000});
    CHECK(file_exists(folder / "step-note.ckpt"));
}

TEST_CASE("what lies beyond a run's step pushes nothing of it out", "[train][checkpoint]") {
    const TemporaryFolder folder;
    for (const std::int64_t step : {800, 900}) write_file_atomic(checkpoint_path(folder.path, step), "damaged");
    for (const std::int64_t step : {100, 200, 300}) {
        write_checkpoint(checkpoint_path(folder.path, step), sample());
        rotate_checkpoints(folder.path, step, 2);
    }
    CHECK(checkpoint_steps(folder.path) == std::vector<std::int64_t>{200, 300, 800, 900});
    remove_checkpoints_after(folder.path, 300);
    CHECK(checkpoint_steps(folder.path) == std::vector<std::int64_t>{200, 300});
}

TEST_CASE("the newest checkpoint is the newest that can be read", "[train][checkpoint]") {
    const TemporaryFolder folder;
    CHECK_FALSE(newest_checkpoint(folder / "absent"));
    Checkpoint checkpoint = sample();
    for (const std::int64_t step : {100, 200}) {
        checkpoint.step = step;
        write_checkpoint(checkpoint_path(folder.path, step), checkpoint);
    }
    CHECK(newest_checkpoint(folder.path)->step == 200);
    write_file_atomic(checkpoint_path(folder.path, 300), "damaged");
    write_checkpoint(checkpoint_path(folder.path, 250), checkpoint);
    CHECK(newest_checkpoint(folder.path)->step == 200);
    CHECK_THROWS_WITH(read_checkpoint(folder.path, 250),
                      "checkpoint " + checkpoint_path(folder.path, 250) + " is of step 200, against its name");
}
