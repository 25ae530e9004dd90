#include "store/run_lock.h"

#include "core/error.h"
#include "core/file.h"
#include "sample.h"
#include "store/run_folder.h"

#include <atomic>
#include <ctime>
#include <fstream>
#include <thread>

#include "catch.h"

using namespace palimpsest;
using sample::TemporaryFolder;

namespace {

using namespace std::chrono_literals;

// Of another host, with a heartbeat as old as that.
LockText lock_elsewhere(std::int64_t age) {
    const std::int64_t then = std::time(nullptr) - age;
    return {"x", "y", "1", "theirs", 1, then, then};
}

std::string lock_of_other() { return lock_elsewhere(0).json(); }

// As if another host had seen its holder sleep for long: the file stays the one that the holder has open.
void let_sleep(const std::string& path) {
    LockText lock = *read_lock(path);
    lock.host = std::string("elsewhere");
    lock.heartbeat = 1;
    std::ofstream(path, std::ios::binary) << lock.json();
}

}  // namespace

TEST_CASE("the heartbeat is written at most once an interval, and notices a lost lock") {
    const TemporaryFolder temporary;
    RunFolder folder(temporary.path());
    RunLock folder_lock(folder.path());
    const std::string before = read_file(folder.file("LOCK"));
    const std::string old = lock_of_other();
    folder_lock.heartbeat(std::chrono::seconds(3600));
    CHECK(read_file(folder.file("LOCK")) == before);
    const auto written = std::filesystem::last_write_time(folder.file("LOCK"));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    folder_lock.heartbeat(std::chrono::seconds(0));
    CHECK(std::filesystem::last_write_time(folder.file("LOCK")) > written);
    CHECK(folder.state() == RunState::running);

    write_file_atomic(folder.file("LOCK"), old);
    std::string message = "no error";
    try {
        folder_lock.heartbeat(std::chrono::seconds(0));
    } catch (const Error& error) {
        message = error.what();
    }
    CHECK(message == "'" + temporary.path() + "': the lock was taken over by pid 1 on host x; this process stops");
    folder_lock.release();
    CHECK(read_file(folder.file("LOCK")) == old);
}

TEST_CASE("a heartbeat never overwrites a lock that was taken over, however late it comes") {
    for (int trial = 0; trial < 200; ++trial) {
        const TemporaryFolder temporary;
        RunLock lock(temporary.path());
        std::atomic<bool> beats{false};
        std::string message;
        std::thread holder([&] {
            try {
                while (true) {
                    lock.heartbeat(0s);
                    beats = true;
                }
            } catch (const LostLock& lost) {
                message = lost.what();
            }
        });
        const std::string theirs = lock_of_other();
        while (!beats) std::this_thread::yield();
        write_file_atomic(temporary.file("LOCK"), theirs);
        holder.join();
        REQUIRE(message == "'" + temporary.path() + "': the lock was taken over by pid 1 on host x; this process stops");
        REQUIRE(read_file(temporary.file("LOCK")) == theirs);
        try {
            lock.heartbeat(3600s);
            FAIL("a lost lock is lost for good");
        } catch (const LostLock& lost) {
            REQUIRE(lost.what() == message);
        }
        lock.release();
        REQUIRE(read_file(temporary.file("LOCK")) == theirs);
    }
}

TEST_CASE("a lock that its last holder removed too late is still held by the next") {
    for (int trial = 0; trial < 100; ++trial) {
        const TemporaryFolder temporary;
        const std::string path = temporary.file("LOCK");
        RunLock late(temporary.path());
        late.heartbeat(0s);
        let_sleep(path);
        RunFolder next(temporary.path());
        std::thread leaves([&] { late.release(); });
        RunLock next_lock(next.path());
        leaves.join();
        next_lock.heartbeat(0s);
        REQUIRE(read_lock(path)->alive());
        next_lock.release();
        REQUIRE_FALSE(file_exists(path));
    }
    // The moment between looking and removing, as it is.
    const TemporaryFolder temporary;
    RunFolder folder(temporary.path());
    RunLock folder_lock(folder.path());
    const LockText before = *read_lock(folder.file("LOCK"));
    remove_file(folder.file("LOCK"));
    folder_lock.heartbeat(0s);
    CHECK(read_lock(folder.file("LOCK"))->token == before.token);
    folder_lock.heartbeat(0s);
    remove_file(folder.file("LOCK"));
    RunFolder third(temporary.path());
    RunLock third_lock(third.path());
    CHECK_THROWS_AS(folder_lock.heartbeat(0s), LostLock);
    CHECK_NOTHROW(third_lock.heartbeat(0s));
}

TEST_CASE("a LOCK that cannot be understood is a failure of the disk, and nobody's") {
    const TemporaryFolder temporary;
    RunLock lock(temporary.path());
    const std::string ours = read_file(temporary.file("LOCK"));
    write_file_atomic(temporary.file("LOCK"), "{");
    CHECK_NOTHROW(lock.heartbeat(0s));
    write_file_atomic(temporary.file("LOCK"), ours);
    CHECK_NOTHROW(lock.heartbeat(0s));
}

TEST_CASE("a failure of the disk costs no lock that is still good") {
    const TemporaryFolder temporary;
    const std::string folder = temporary.file("run"), away = temporary.file("away");
    make_folders(folder);
    RunLock patient(folder);
    std::filesystem::rename(folder, away);
    for (int i = 0; i < 3; ++i) CHECK_NOTHROW(patient.heartbeat(0s));
    std::filesystem::rename(away, folder);
    CHECK_NOTHROW(patient.heartbeat(0s));
    CHECK(read_lock(folder + "/LOCK")->alive());
    patient.release();
    CHECK(list_files(folder).empty());

    RunLock strict(folder, 0s);
    strict.heartbeat(0s);
    std::filesystem::rename(folder, away);
    std::string message;
    try {
        strict.heartbeat(0s);
    } catch (const LostLock&) {
        message = "lost";
    } catch (const Error& error) {
        message = error.what();
    }
    CHECK(message ==
          "'" + folder + "': the lock could not be held on to: cannot write '" + folder + "/LOCK': No such file or directory");
    std::filesystem::rename(away, folder);
    CHECK_NOTHROW(strict.heartbeat(0s));
}

TEST_CASE("a lock of half a sentence is given time to be written") {
    const TemporaryFolder temporary;
    const std::string path = temporary.file("LOCK");
    write_file_atomic(path, "");
    std::thread writer([&] {
        std::this_thread::sleep_for(100ms);
        write_file_atomic(path, lock_of_other());
    });
    std::string message;
    try {
        RunLock lock(temporary.path());
    } catch (const Error& error) {
        message = error.what();
    }
    writer.join();
    CHECK(message == "already running (pid 1 on host x): '" + temporary.path() + "'");
}
