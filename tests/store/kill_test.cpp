// SIGKILL at random moments, with the writer at full speed, so that most of them fall into a write.
#include "core/error.h"
#include "sample.h"
#include "store/hdf5.h"
#include "store/run_folder.h"
#include "store/run_reader.h"
#include "store/run_writer.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>

#include "catch.h"

using namespace palimpsest;
using sample::TemporaryFolder;

namespace {

// Seen by parent and child.
struct Shared {
    std::atomic<std::int64_t> started{0}, flushed{0};
};

struct SharedPage {
    Shared* shared = new (::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
    ~SharedPage() { ::munmap(shared, sizeof(Shared)); }
};

// 20, or what PALIMPSEST_KILL_TRIALS says: for a longer look.
int kill_trials() {
    const char* text = std::getenv("PALIMPSEST_KILL_TRIALS");
    return text == nullptr ? 20 : std::atoi(text);
}

// Runs `work` in a child process and kills it `microseconds` after it has set shared.started. Returns whether it was still at work.
bool kill_during(const std::function<void(Shared&)>& work, Shared& shared, int microseconds) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        try {
            work(shared);
        } catch (...) {
            ::_exit(1);
        }
        ::_exit(0);
    }
    int status = 0;
    bool ended = false;
    while (shared.started == 0 && !ended) {
        ended = ::waitpid(child, &status, WNOHANG) == child;
        std::this_thread::yield();
    }
    ::usleep(static_cast<useconds_t>(microseconds));
    ::kill(child, SIGKILL);
    if (!ended) ::waitpid(child, &status, 0);
    REQUIRE((WIFSIGNALED(status) || WEXITSTATUS(status) == 0));
    return WIFSIGNALED(status);
}

std::size_t rows(const std::string& file, const std::string& group, const std::string& name) {
    const hdf5::Handle open = hdf5::open_file(sample::bytes_of(file));
    return hdf5::shape(hdf5::open_dataset(hdf5::open_group(open, group), name))[0];
}

void check_equal_lengths(const std::string& file) {
    const std::pair<const char*, std::vector<std::string>> tables[] = {
        {"train", {"step", "loss", "accuracy", "lr"}},
        {"eval", {"eval_step", "answers", "loss_sum"}},
        {"system", {"time_step", "seconds", "tokens_per_second", "gpu_bytes_peak"}}};
    for (const auto& [group, names] : tables) {
        for (const std::string& name : names) REQUIRE(rows(file, group, name) == rows(file, group, names[0]));
    }
}

}  // namespace

TEST_CASE("a run killed at any moment leaves a whole file with every flushed row, and goes on") {
    std::mt19937 random(7);
    std::int64_t rows_seen = 0, rows_beyond_flush = 0;
    for (int trial = 0; trial < kill_trials(); ++trial) {
        const TemporaryFolder folder;
        const SharedPage page;
        const auto endless = [&](Shared& shared) {
            RunWriter writer = RunWriter::create(folder.path(), sample::header(), 1e9);
            shared.started = 1;
            for (std::int64_t step = 10;; step += 10) {
                sample::add_rows(writer, step - 9, step);
                writer.flush();
                shared.flushed = step;
            }
        };
        REQUIRE(kill_during(endless, *page.shared, static_cast<int>(random() % 60000)));

        const std::string file = folder.file("run.h5");
        check_equal_lengths(file);
        const RunRecord record = read_run(file);
        const auto count = static_cast<std::int64_t>(record.step.size());
        INFO("trial " << trial << ", rows " << count << ", flushed " << page.shared->flushed);
        REQUIRE(count >= page.shared->flushed);
        REQUIRE(count <= page.shared->flushed + 10);
        rows_seen += count;
        rows_beyond_flush += count > page.shared->flushed ? 1 : 0;
        for (std::int64_t i = 0; i < count; ++i) {
            const auto at = static_cast<std::size_t>(i);
            REQUIRE(record.step[at] == i + 1);
            REQUIRE(record.train.at("loss")[at] == sample::metrics(i + 1)[0]);
            REQUIRE(record.train.at("lr")[at] == sample::metrics(i + 1)[2]);
        }

        {
            RunWriter writer = RunWriter::reopen(folder.path(), sample::header(), count, 1e9);
            sample::add_rows(writer, count + 1, count + 20);
        }
        REQUIRE(read_run(file).step.size() == static_cast<std::size_t>(count + 20));
        // Nothing but the record is left: no half-written file of the killed process.
        REQUIRE(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
    }
    WARN(kill_trials() << " kills, " << rows_seen << " rows read back, " << rows_beyond_flush << " kills just after a publication");
}

TEST_CASE("killed while it finishes, a run has its old file or its new one") {
    std::mt19937 random(11);
    int killed = 0, old_file = 0, new_file = 0, span = 100;  // microseconds
    for (int trial = 0; trial < kill_trials(); ++trial) {
        const TemporaryFolder folder;
        const SharedPage page;
        const auto finishing = [&](Shared& shared) {
            RunWriter writer = RunWriter::create(folder.path(), sample::header(), 1e9);
            sample::add_rows(writer, 1, 3000);
            writer.flush();
            shared.started = 1;
            writer.finish("finished", sample::summary(), {});
            shared.flushed = 1;
        };
        const int wait = static_cast<int>(random() % static_cast<unsigned>(span));
        const bool in_time = kill_during(finishing, *page.shared, wait);
        killed += in_time ? 1 : 0;
        span = in_time ? span * 2 : std::max(wait, 100);  // stay near the time that finishing takes on this machine
        const RunRecord record = read_run(folder.file("run.h5"));
        REQUIRE(record.step.size() == 3000);
        REQUIRE(record.train.at("loss").back() == sample::metrics(3000)[0]);
        REQUIRE((record.status.empty() == record.summary.empty()));
        if (page.shared->flushed == 1) REQUIRE(record.status == "finished");
        ++(record.status.empty() ? old_file : new_file);
    }
    WARN(killed << " killed while finishing: " << old_file << " old files, " << new_file << " new files");
    CHECK(killed > 0);
    CHECK(old_file > 0);
}

TEST_CASE("a reader that stays open does not stop the writer, nor the writer a short reader") {
    const TemporaryFolder folder;
    RunWriter writer = RunWriter::create(folder.path(), sample::header(), 1e9);
    sample::add_rows(writer, 1, 10);
    writer.flush();

    // As a viewer does: the library's default open, with its lock on the file.
    const hdf5::Guard guard;
    const hdf5::Handle viewer(H5Fopen(folder.file("run.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, "open as a viewer");
    std::atomic<bool> stop{false};
    std::atomic<int> reads{0}, wrong{0};
    std::thread reader([&] {
        while (!stop || reads == 0) {
            const std::string image = sample::bytes_of(folder.file("run.h5"));
            // The library's mutex is held by the writing thread; the bytes are judged by their own account of their length.
            std::uint64_t end = 0;
            std::memcpy(&end, image.data() + 40, sizeof end);
            if (image.substr(0, 4) != "\x89HDF" || end != image.size()) ++wrong;
            ++reads;
        }
    });
    for (std::int64_t step = 20; step <= 600; step += 10) {
        sample::add_rows(writer, step - 9, step);
        writer.flush();
    }
    writer.finish("finished", sample::summary(), {});
    stop = true;
    reader.join();
    CHECK(reads > 0);
    CHECK(wrong == 0);
    CHECK(hdf5::shape(hdf5::open_dataset(hdf5::open_group(viewer, "train"), "step"))[0] == 10);
    CHECK(read_run(folder.file("run.h5")).step.size() == 600);
}

TEST_CASE("where the disk is full the last published file stays, and later flushes lose nothing") {
    const TemporaryFolder folder;
    RunWriter writer = RunWriter::create(folder.path(), sample::header(), 1e9);
    sample::add_rows(writer, 1, 100);
    writer.flush();
    const std::string before = sample::bytes_of(folder.file("run.h5"));

    // A limit on the size of files stands for a full disk: write(2) fails halfway.
    struct rlimit old_limit;
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
    const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = old_limit;
    limit.rlim_cur = before.size() / 2;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    sample::add_rows(writer, 101, 200);
    std::string message;
    ExitCode code = ExitCode::ok;
    try {
        writer.flush();
    } catch (const Error& error) {
        message = error.what();
        code = error.code();
    }
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &old_limit) == 0);
    ::signal(SIGXFSZ, old_handler);

    CHECK(code == ExitCode::run_failed);
    CHECK_THAT(message, ContainsSubstring("cannot write '" + folder.file("run.h5") + "': File too large ("));
    CHECK_THAT(message, ContainsSubstring(" bytes free in '" + folder.path() + "', "));
    CHECK(sample::bytes_of(folder.file("run.h5")) == before);
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);

    sample::add_rows(writer, 201, 300);
    writer.flush();
    const RunRecord record = read_run(folder.file("run.h5"));
    REQUIRE(record.step.size() == 300);
    CHECK(record.step.back() == 300);
    CHECK(record.train.at("lr")[149] == sample::metrics(150)[2]);
}
