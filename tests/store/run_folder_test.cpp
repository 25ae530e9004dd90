#include "store/run_folder.h"

#include "core/error.h"
#include "core/file.h"
#include "sample.h"
#include "store/hdf5.h"
#include "store/run_lock.h"

#include <ctime>
#include <sys/wait.h>
#include <thread>

#include "catch.h"

using namespace palimpsest;
using sample::TemporaryFolder;

namespace {

std::string lock_text(const std::string& host, std::int64_t pid, const std::string& process_start, std::int64_t heartbeat,
                      const std::string& pid_namespace) {
    return fmt::format(
        R"({{"host": "{}", "pid": {}, "pid_namespace": "{}", "process_start": "{}", "token": "t", "created": 1, "heartbeat": {}}})",
        host, pid, pid_namespace, process_start, heartbeat);
}

std::string own_host() {
    char name[256] = "";
    ::gethostname(name, sizeof name - 1);
    return name;
}

std::string own_namespace() { return std::filesystem::read_symlink("/proc/self/ns/pid").string(); }

std::string lock_error(RunFolder& folder, ExitCode expected) {
    try {
        RunLock(folder.path());
    } catch (const Error& error) {
        CHECK(error.code() == expected);
        return error.what();
    }
    return "locked";
}

}  // namespace

TEST_CASE("a run goes from fresh to running to finished") {
    const TemporaryFolder temporary;
    RunFolder folder(temporary.path());
    CHECK(folder.state() == RunState::fresh);
    CHECK(folder.holder().empty());
    RunLock folder_lock(folder.path());
    CHECK(folder.state() == RunState::running);
    CHECK(folder.holder() == fmt::format("pid {} on host {}", ::getpid(), own_host()));
    sample::write_run(temporary.path(), 20);
    folder.write_done();
    folder_lock.release();
    CHECK(folder.state() == RunState::finished);
    CHECK_FALSE(file_exists(folder.file("LOCK")));
    CHECK(std::string(to_string(RunState::finished)) == "finished");
    CHECK(std::string(to_string(RunState::lost)) == "lost");
}

TEST_CASE("failure is told, kept and cleared") {
    const TemporaryFolder temporary;
    RunFolder folder(temporary.path());
    folder.write_failed({"non_finite", "loss is NaN at step 7, \xff", 7});
    CHECK(folder.state() == RunState::failed);
    REQUIRE(folder.failure());
    CHECK(folder.failure()->reason == "non_finite");
    CHECK(folder.failure()->step == 7);
    CHECK(folder.failure()->message.rfind("loss is NaN at step 7, ", 0) == 0);
    folder.write_failed({"interrupted", "Ctrl-C", 8});
    CHECK(folder.state() == RunState::interrupted);
    folder.write_failed({"requeue", "SIGTERM", 8});
    CHECK(folder.state() == RunState::interrupted);
    RunLock folder_lock(folder.path());
    CHECK(folder.state() == RunState::running);
    sample::write_run(temporary.path(), 20);
    folder.write_done();
    folder_lock.release();
    CHECK(folder.state() == RunState::finished);
    CHECK_FALSE(folder.failure());
    folder.write_failed({"error", "x", 1});
    folder.clear_end();
    CHECK(list_files(temporary.path()) == std::vector<std::string>{"run.h5"});
}

TEST_CASE("a held lock stops a second run, whoever asks") {
    const TemporaryFolder temporary;
    RunFolder first(temporary.path()), second(temporary.path());
    RunLock first_lock(first.path());
    const std::string expected = fmt::format("already running (pid {} on host {}): '{}'", ::getpid(), own_host(), temporary.path());
    CHECK(lock_error(second, ExitCode::usage) == expected);
    const pid_t child = ::fork();
    if (child == 0) {
        try {
            RunLock(temporary.path());
        } catch (const Error& error) {
            ::_exit(error.what() == expected ? 7 : 8);
        }
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WEXITSTATUS(status) == 7);
    CHECK(first.state() == RunState::running);
    first_lock.release();
    RunLock second_lock(second.path());
    CHECK(second.state() == RunState::running);
}

TEST_CASE("a killed process's lock is seen as lost at once, and taken over without a clean-up") {
    const TemporaryFolder temporary;
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        RunLock(temporary.path());
        if (::write(ready[1], "x", 1) != 1) ::_exit(1);
        ::pause();
    }
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    RunFolder folder(temporary.path());
    CHECK(folder.state() == RunState::running);
    ::kill(child, SIGKILL);
    // Dead as soon as it is a zombie, even before its parent has noticed.
    siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
    CHECK(folder.state() == RunState::lost);
    ::waitpid(child, nullptr, 0);
    CHECK(folder.state() == RunState::lost);
    RunLock folder_lock(folder.path());
    CHECK(folder.holder() == fmt::format("pid {} on host {}", ::getpid(), own_host()));
    CHECK(list_files(temporary.path()) == std::vector<std::string>{"LOCK"});
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST_CASE("a process number used again is not the process that locked") {
    const TemporaryFolder temporary;
    RunFolder folder(temporary.path());
    write_file_atomic(folder.file("LOCK"), lock_text(own_host(), ::getpid(), "12", std::time(nullptr), own_namespace()));
    CHECK(folder.state() == RunState::lost);
    CHECK(lock_error(folder, ExitCode::usage) == "locked");
}

TEST_CASE("another host's lock lives by its heartbeat, with room for clocks that differ by a minute") {
    const TemporaryFolder temporary;
    RunFolder folder(temporary.path());
    const std::int64_t now = std::time(nullptr);
    const auto state_at = [&](std::int64_t heartbeat) {
        write_file_atomic(folder.file("LOCK"), lock_text("elsewhere", 1, "12", heartbeat, own_namespace()));
        return folder.state();
    };
    CHECK(state_at(now) == RunState::running);
    CHECK(state_at(now - 60) == RunState::running);
    CHECK(state_at(now + 60) == RunState::running);
    CHECK(lock_error(folder, ExitCode::usage) == "already running (pid 1 on host elsewhere): '" + temporary.path() + "'");
    CHECK(state_at(now - RunLock::stale_after.count() - 5) == RunState::lost);
    CHECK(lock_error(folder, ExitCode::usage) == "locked");
}

TEST_CASE("the same host name in another container is another host") {
    const TemporaryFolder temporary;
    RunFolder folder(temporary.path());
    write_file_atomic(folder.file("LOCK"), lock_text(own_host(), 999999, "12", std::time(nullptr), "pid:[1]"));
    CHECK(folder.state() == RunState::running);
}

TEST_CASE("an unreadable lock counts as dead") {
    const TemporaryFolder temporary;
    RunFolder folder(temporary.path());
    write_file_atomic(folder.file("LOCK"), "{");
    CHECK(folder.state() == RunState::lost);
    CHECK(lock_error(folder, ExitCode::usage) == "locked");
}

TEST_CASE("of many that want a dead lock at once, one gets it") {
    for (int trial = 0; trial < 20; ++trial) {
        const TemporaryFolder temporary;
        write_file_atomic(temporary.file("LOCK"), lock_text(own_host(), 999999, "12", 1, own_namespace()));
        std::atomic<int> winners{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&] {
                try {
                    RunLock(temporary.path());
                    ++winners;
                } catch (const Error&) {
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        CHECK(winners == 1);
        CHECK(std::distance(std::filesystem::directory_iterator(temporary.path()), {}) == 1);
    }
}

TEST_CASE("who died while taking a dead lock over stops nobody") {
    const TemporaryFolder temporary;
    RunFolder folder(temporary.path());
    write_file_atomic(folder.file("LOCK"), lock_text(own_host(), 999999, "12", 1, own_namespace()));
    std::string second = lock_text(own_host(), 999998, "12", 1, own_namespace());
    second.replace(second.find("\"t\""), 3, "\"u\"");
    write_file_atomic(folder.file("LOCK.tmp-claim-t"), second);
    CHECK(lock_error(folder, ExitCode::usage) == "locked");
    CHECK(folder.state() == RunState::running);
    CHECK(std::distance(std::filesystem::directory_iterator(temporary.path()), {}) == 1);
}

TEST_CASE("a finished run without the record that belongs to it is lost") {
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.path());
    const std::string record = folder.file("run.h5");
    RunFolder(temporary.path()).write_done();
    CHECK(folder.state() == RunState::lost);
    CHECK(folder.lost_record() == "'" + record + "' is missing");

    write_file_atomic(record, "");
    CHECK(folder.state() == RunState::lost);
    CHECK(folder.lost_record() == "'" + record + "' is damaged: the file is empty");

    remove_file(record);
    {
        RunWriter writer = RunWriter::create(temporary.path(), sample::header(), 1e9);
        sample::add_rows(writer, 1, 5);
    }
    CHECK(folder.state() == RunState::lost);
    CHECK(folder.lost_record() == "'" + record + "' stands beside DONE, but is not finished");
    remove_file(folder.file("DONE"));
    CHECK(folder.lost_record().empty());

    remove_file(record);
    CHECK(folder.state() == RunState::fresh);
    CHECK(folder.lost_record().empty());
    make_folders(folder.file("checkpoints"));
    CHECK(folder.lost_record().empty());
    write_file_atomic(folder.file("checkpoints/step-000000010.ckpt"), "");
    CHECK(folder.lost_record() == "'" + record + "' is missing");

    // A newer version has finished it: nothing is lost, it cannot be read here.
    sample::write_run(temporary.path(), 20);
    const hdf5::Handle newer = hdf5::open_file(sample::bytes_of(record), hdf5::Access::write);
    hdf5::write_attribute(hdf5::open_group(newer, "/"), "format_version", std::string("2.0"));
    write_file_atomic(record, hdf5::image(newer));
    RunFolder(temporary.path()).write_done();
    CHECK(folder.state() == RunState::finished);
}

TEST_CASE("a run.h5 with no state beside it is lost") {
    const TemporaryFolder temporary;
    write_file_atomic(temporary.file("run.h5"), "");
    CHECK(RunFolder(temporary.path()).state() == RunState::lost);
}

TEST_CASE("folders are named by id and a harmless form of the human part") {
    CHECK(run_folder_name("3f2a9c0d11e2", "mixer=delta lr=1e-3/seed 2") == "3f2a9c0d11e2-mixer=delta_lr=1e-3_seed_2");
    CHECK(run_folder_name("3f2a9c0d11e2", "") == "3f2a9c0d11e2");
    CHECK(run_folder_name("3f2a9c0d11e2", std::string(300, 'x')).size() == 12 + 1 + 80);
    // Runs that agree in the first digits, or in the beginning of a long human part, are told apart.
    CHECK(run_folder_name("3f2a9c0d11e2", "same") != run_folder_name("3f2a9c0d11e3", "same"));
    CHECK(run_folder_name("3f2a9c0d11e2", std::string(300, 'x')) != run_folder_name("3f2a9c0d11e3", std::string(300, 'x') + "y"));
}

TEST_CASE("run folders are found at any depth, in order") {
    const TemporaryFolder temporary;
    for (const char* name : {"b/two", "b/one", "a", "empty"}) make_folders(temporary.file(name));
    for (const char* name : {"b/two", "b/one", "a"}) write_file_atomic(temporary.file(name) + "/run.h5", "");
    CHECK(find_run_folders(temporary.path()) ==
          std::vector<std::string>{temporary.file("a"), temporary.file("b/one"), temporary.file("b/two")});
    CHECK(find_run_folders(temporary.file("a")) == std::vector<std::string>{temporary.file("a")});
    CHECK(find_run_folders(temporary.file("empty")).empty());
    std::string message;
    try {
        find_run_folders(temporary.file("nowhere"));
    } catch (const Error& error) {
        message = error.what();
    }
    CHECK(message == "no such folder: '" + temporary.file("nowhere") + "'");
}
