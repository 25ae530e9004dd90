#include "core/file.h"

#include "core/error.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace palimpsest {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view temporary_mark = ".tmp-";

[[noreturn]] void cannot(const char* verb, const std::string& path, int error) {
    const ExitCode code = std::string_view(verb) == "read" ? ExitCode::usage : ExitCode::run_failed;
    if (error == ENOSPC || error == EDQUOT)
        fail(code, "cannot {} '{}': the disk (or your quota) is full; free some space there", verb, path);
    fail(code, "cannot {} '{}': {}", verb, path, std::strerror(error));
}

std::string parent_of(const std::string& path) {
    const std::string parent = fs::path(path).parent_path().string();
    return parent.empty() ? "." : parent;
}

// These are the errors of a file system that does not know the request.
bool is_unknown_request(int error) { return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP || error == EBADF; }

int rename_exclusive(const char* from, const char* to) { return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE); }

bool is_same_file(const std::string& a, const std::string& b) {
    std::error_code error;
    return fs::equivalent(a, b, error);
}

std::vector<std::string> list(const std::string& folder, bool folders) {
    std::error_code error;
    std::vector<std::string> names;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        std::error_code vanished;  // an entry that vanished meanwhile is no error
        const bool wanted = folders ? entry->is_directory(vanished) : entry->is_regular_file(vanished);
        std::string name = entry->path().filename().string();
        if (wanted && name.find(temporary_mark) == std::string::npos) names.push_back(std::move(name));
    }
    if (error) cannot("read", folder, error.value());
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace

std::string read_file(const std::string& path, std::size_t most) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
    if (!file) cannot("read", path, errno);
    std::string content;
    char buffer[1 << 14];
    while (const std::size_t size = std::fread(buffer, 1, std::min(sizeof buffer, most - content.size()), file.get()))
        content.append(buffer, size);
    if (std::ferror(file.get()) != 0) cannot("read", path, errno);  // opening a folder succeeds, reading it fails here
    return content;
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
    static std::atomic<unsigned> count{0};
    do {
        temporary_ = fmt::format("{}{}{}-{}", path_, temporary_mark, ::getpid(), count++);
        descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (descriptor_ < 0 && errno == EEXIST);  // the name may be left from a killed process with the same number
    if (descriptor_ < 0) cannot("write", path_, errno);
    exists_ = true;
}

AtomicFile::~AtomicFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (exists_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t size) {
    auto bytes = static_cast<const char*>(data);
    while (size > 0) {
        const ssize_t written = ::write(descriptor_, bytes, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) cannot("write", path_, errno);
        bytes += written;
        size -= static_cast<std::size_t>(written);
    }
}

void AtomicFile::finish() {
    if (::fsync(descriptor_) != 0 && !is_unknown_request(errno)) cannot("write", path_, errno);
    const int closed = ::close(descriptor_);  // network file systems report a full disk only here
    descriptor_ = -1;
    if (closed != 0) cannot("write", path_, errno);
}

void AtomicFile::commit() {
    finish();
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) cannot("write", path_, errno);
    exists_ = false;
    sync_folder(parent_of(path_));
}

bool AtomicFile::commit_if_absent() {
    finish();
    if (!take_name()) return false;
    sync_folder(parent_of(path_));
    return true;
}

bool AtomicFile::take_name() {
    const ExclusiveCalls& calls = exclusive_calls();
    if (calls.link(temporary_.c_str(), path_.c_str()) == 0) return true;
    // A network file system may lose the answer of a link that it made, and find its own link when it asks again.
    if (errno == EEXIST) return is_same_file(temporary_, path_);
    if (calls.rename(temporary_.c_str(), path_.c_str()) == 0) {
        exists_ = false;
        return true;
    }
    if (errno == EEXIST) return false;
    // Every file system can make an empty file exclusively. The complete file then replaces it.
    const int placeholder = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (placeholder < 0 && errno == EEXIST) return false;
    if (placeholder < 0) cannot("create", path_, errno);
    ::close(placeholder);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
        const int error = errno;
        ::unlink(path_.c_str());
        cannot("create", path_, error);
    }
    exists_ = false;
    return true;
}

ExclusiveCalls& exclusive_calls() {
    static ExclusiveCalls calls = {&::link, &rename_exclusive};
    return calls;
}

FileLock::FileLock(const std::string& path) : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) cannot("write", path, errno);
}

FileLock::~FileLock() { ::close(descriptor_); }

bool FileLock::try_alone() { return ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

void FileLock::share() {
    while (::flock(descriptor_, LOCK_SH) != 0 && errno == EINTR) {
    }
}

void write_file_atomic(const std::string& path, std::string_view content) {
    AtomicFile file(path);
    file.write(content);
    file.commit();
}

bool create_file(const std::string& path, std::string_view content) {
    AtomicFile file(path);
    file.write(content);
    return file.commit_if_absent();
}

bool file_exists(const std::string& path) {
    std::error_code error;
    return fs::is_regular_file(path, error);
}

bool folder_exists(const std::string& path) {
    std::error_code error;
    return fs::is_directory(path, error);
}

void make_folders(const std::string& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) cannot("create", path, error.value());
}

void remove_file(const std::string& path) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) cannot("remove", path, errno);
}

std::vector<std::string> list_files(const std::string& folder) { return list(folder, false); }
std::vector<std::string> list_folders(const std::string& folder) { return list(folder, true); }

void sync_folder(const std::string& folder) {
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) cannot("read", folder, errno);
    const int result = ::fsync(descriptor);
    const int error = errno;
    ::close(descriptor);
    // Some file systems cannot sync a folder and offer nothing better.
    if (result != 0 && !is_unknown_request(error)) cannot("write", folder, error);
}

std::int64_t free_bytes(const std::string& path) {
    std::error_code error;
    const fs::space_info space = fs::space(path, error);
    if (error) cannot("read", path, error.value());
    return static_cast<std::int64_t>(space.available);
}

}  // namespace palimpsest
