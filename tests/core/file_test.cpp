#include "core/file.h"

#include "core/error.h"
#include "temporary_folder.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "catch.h"

using namespace palimpsest;

namespace {

int refuse(int error) {
    errno = error;
    return -1;
}
int no_links(const char*, const char*) { return refuse(EPERM); }
int unknown_rename(const char*, const char*) { return refuse(EINVAL); }

// A file system that lacks the given calls, until the end of the scope.
class Lacking {
public:
    Lacking(int (*link)(const char*, const char*), int (*rename)(const char*, const char*)) : before_(exclusive_calls()) {
        exclusive_calls() = {link ? link : before_.link, rename ? rename : before_.rename};
    }
    ~Lacking() { exclusive_calls() = before_; }

private:
    ExclusiveCalls before_;
};

std::size_t entries(const std::string& folder) {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

}  // namespace

TEST_CASE("a file is written, replaced and read back byte for byte") {
    const TemporaryFolder folder;
    const std::string path = folder / "file", bytes("a\0b\r\n\xff", 6);
    write_file_atomic(path, "before");
    write_file_atomic(path, bytes);
    CHECK(read_file(path) == bytes);
    CHECK(entries(folder.path) == 1);
    const std::string large(300000, 'z');
    write_file_atomic(path, large);
    CHECK(read_file(path) == large);
}

TEST_CASE("a new file has the permissions that the user's mask asks for") {
    const TemporaryFolder folder;
    const mode_t mask = ::umask(027);
    write_file_atomic(folder / "file", "x");
    ::umask(mask);
    struct stat status {};
    REQUIRE(::stat((folder / "file").c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0640);
}

TEST_CASE("without commit nothing is left and nothing is replaced") {
    const TemporaryFolder folder;
    write_file_atomic(folder / "file", "old");
    {
        AtomicFile file(folder / "file");
        file.write("new");
        CHECK(read_file(folder / "file") == "old");
    }
    CHECK(read_file(folder / "file") == "old");
    CHECK(entries(folder.path) == 1);
}

TEST_CASE("readers see the old content or the new, never a part") {
    const TemporaryFolder folder;
    const std::string path = folder / "file";
    const std::string a(100000, 'a'), b(100000, 'b');
    write_file_atomic(path, a);
    std::atomic<bool> done{false};
    bool whole = true;
    std::thread reader([&] {
        while (!done) {
            const std::string seen = read_file(path);
            whole = whole && (seen == a || seen == b);
        }
    });
    for (int i = 0; i < 50; ++i) write_file_atomic(path, i % 2 == 0 ? b : a);
    done = true;
    reader.join();
    CHECK(whole);
}

TEST_CASE("of many that create one name exactly one succeeds, and its content is whole") {
    // With all that a file system may offer, without hard links, and without a rename that replaces nothing too.
    const std::pair<int (*)(const char*, const char*), int (*)(const char*, const char*)> lacking[] = {
        {nullptr, nullptr},
        {&no_links, nullptr},
        {[](const char*, const char*) { return refuse(EOPNOTSUPP); }, &unknown_rename},
        {[](const char*, const char*) { return refuse(ENOSYS); }, [](const char*, const char*) { return refuse(ENOSYS); }},
        {&no_links, &unknown_rename}};
    for (const auto& [link, rename] : lacking) {
        const Lacking calls(link, rename);
        const TemporaryFolder folder;
        std::atomic<int> winners{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; ++i) {
            threads.emplace_back([&] {
                if (create_file(folder / "LOCK", "holder")) ++winners;
            });
        }
        for (std::thread& thread : threads) thread.join();
        CHECK(winners == 1);
        CHECK(read_file(folder / "LOCK") == "holder");
        CHECK_FALSE(create_file(folder / "LOCK", "another"));
        CHECK(read_file(folder / "LOCK") == "holder");
        CHECK(entries(folder.path) == 1);
    }
}

TEST_CASE("a link whose answer was lost is ours all the same") {
    // As a network file system does it: the link is made, its answer is lost, and the second asking finds the name taken.
    const Lacking calls(
        [](const char* from, const char* to) {
            if (::link(from, to) != 0) return -1;
            return refuse(EEXIST);
        },
        nullptr);
    const TemporaryFolder folder;
    CHECK(create_file(folder / "LOCK", "ours"));
    CHECK(read_file(folder / "LOCK") == "ours");
    CHECK_FALSE(create_file(folder / "LOCK", "another"));
}

TEST_CASE("a name that a folder has is taken") {
    const Lacking calls(&no_links, &unknown_rename);
    const TemporaryFolder folder;
    make_folders(folder / "sub");
    CHECK_FALSE(create_file(folder / "sub", "x"));
    CHECK(folder_exists(folder / "sub"));
    CHECK(entries(folder.path) == 1);
}

TEST_CASE("a lock of the kernel keeps others out while it is held, and no longer") {
    const TemporaryFolder folder;
    const std::string path = folder / "lock";
    FileLock first(path), second(path);  // two opens of one file are as two processes
    CHECK(first.try_alone());
    CHECK_FALSE(second.try_alone());
    first.share();
    CHECK_FALSE(second.try_alone());
    second.share();
    CHECK_FALSE(first.try_alone());
    first.share();
    {
        FileLock third(path);
        third.share();
    }
    second.share();
    CHECK_FALSE(first.try_alone());  // it gave its share up for the attempt
    CHECK(second.try_alone());
}

TEST_CASE("errors name the path and the reason") {
    const TemporaryFolder folder;
    const std::string absent = folder / "absent";
    CHECK_THROWS_WITH(read_file(absent), "cannot read '" + absent + "': No such file or directory");
    CHECK_THROWS_WITH(read_file(folder.path), "cannot read '" + folder.path + "': Is a directory");
    CHECK_THROWS_WITH(write_file_atomic(absent + "/file", "x"), "cannot write '" + absent + "/file': No such file or directory");
    CHECK_THROWS_WITH(list_files(absent), "cannot read '" + absent + "': No such file or directory");
    write_file_atomic(folder / "file", "x");
    CHECK_THROWS_WITH(make_folders(folder / "file/sub"), "cannot create '" + (folder / "file/sub") + "': Not a directory");
    try {
        read_file(absent);
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::usage);
    }
}

TEST_CASE("a write that fails half-way says so, keeps the old file and leaves no other") {
    const TemporaryFolder folder;
    const std::string path = folder / "file";
    write_file_atomic(path, "old");
    // In a child, since the limit on file sizes holds for the whole process.
    const pid_t child = ::fork();
    if (child == 0) {
        std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit = {10000, 10000};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        try {
            write_file_atomic(path, std::string(20000, 'x'));
        } catch (const Error& error) {
            const bool right =
                error.code() == ExitCode::run_failed && error.what() == "cannot write '" + path + "': File too large";
            ::_exit(right ? 0 : 1);
        }
        ::_exit(2);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(read_file(path) == "old");
    CHECK(entries(folder.path) == 1);
}

TEST_CASE("a full disk is called that") {
    // /dev/full behind the temporary name: the file is opened through a path of ours, and the device answers as a full disk does.
    const TemporaryFolder folder;
    AtomicFile file(folder / "file");
    const std::vector<std::string> names = [&] {
        std::vector<std::string> found;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
            if (target.rfind(folder.path, 0) == 0) found.push_back(entry.path().filename().string());
        }
        return found;
    }();
    REQUIRE(names.size() == 1);
    const int full = ::open("/dev/full", O_WRONLY);
    REQUIRE(full >= 0);
    REQUIRE(::dup2(full, std::stoi(names[0])) >= 0);
    ::close(full);
    CHECK_THROWS_WITH(file.write("x"),
                      "cannot write '" + (folder / "file") + "': the disk (or your quota) is full; free some space there");
}

TEST_CASE("listings are sorted and leave out what is being written") {
    const TemporaryFolder folder;
    make_folders(folder / "b/c");
    make_folders(folder / "a");
    make_folders(folder / "a");
    for (const char* name : {"z", "x", "y"}) write_file_atomic(folder / name, "");
    const AtomicFile unfinished(folder / "w");
    CHECK(list_files(folder.path) == std::vector<std::string>{"x", "y", "z"});
    CHECK(list_folders(folder.path) == std::vector<std::string>{"a", "b"});
    CHECK(file_exists(folder / "x"));
    CHECK_FALSE(file_exists(folder / "a"));
    CHECK(folder_exists(folder / "a"));
    CHECK_FALSE(folder_exists(folder / "x"));
    remove_file(folder / "x");
    remove_file(folder / "x");
    CHECK_FALSE(file_exists(folder / "x"));
    CHECK(free_bytes(folder.path) > 0);
}
