// Files that are whole or absent. Every error names the path and the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

std::string read_file(const std::string& path, std::size_t most = static_cast<std::size_t>(-1));  // at most the first `most` bytes

// An `AtomicFile` appears under its name only when it is complete: written beside it, fsync, rename, fsync of the folder. A reader
// sees the old content or the new one, whenever a process is killed. An AtomicFile that ends before commit() leaves nothing behind.
class AtomicFile {
public:
    explicit AtomicFile(std::string path);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    void write(const void* data, std::size_t size);
    void write(std::string_view text) { write(text.data(), text.size()); }
    void commit();            // replaces a file of that name
    bool commit_if_absent();  // returns false, and changes nothing, where the name is taken

private:
    void finish();
    bool take_name();

    std::string path_, temporary_;
    int descriptor_ = -1;
    bool exists_ = false;
};

void write_file_atomic(const std::string& path, std::string_view content);
// Creates a file exclusively: of several processes that create one name, exactly one gets true. The content is complete when the
// name appears; only on a file system with neither hard links nor a rename that replaces nothing may it look empty for a moment.
bool create_file(const std::string& path, std::string_view content);

// The two calls give a complete file its name exclusively. File systems lack one or both; tests replace the calls to imitate this.
struct ExclusiveCalls {
    int (*link)(const char* from, const char* to);
    int (*rename)(const char* from, const char* to);  // fails with EEXIST where `to` exists
};
ExclusiveCalls& exclusive_calls();

// A `FileLock` is a lock of the kernel (flock) on a file that is made for it. The lock ends with the process that holds it, however
// that process ends. Where the file system has no such locks, the lock keeps nobody out.
class FileLock {
public:
    explicit FileLock(const std::string& path);
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

    bool try_alone();  // returns false, holding nothing, where another process holds the lock, alone or shared
    void share();      // waits while another process holds the lock alone

private:
    int descriptor_ = -1;
};

bool file_exists(const std::string& path);  // whether it is a regular file
bool folder_exists(const std::string& path);
void make_folders(const std::string& path);                        // with its parents; an existing folder is no error
void remove_file(const std::string& path);                         // an absent file is no error
std::vector<std::string> list_files(const std::string& folder);    // names, sorted, without the temporary files of AtomicFile
std::vector<std::string> list_folders(const std::string& folder);  // names, sorted
void sync_folder(const std::string& folder);                       // makes a rename inside the folder durable
std::int64_t free_bytes(const std::string& path);                  // on the file system that holds `path`

}  // namespace palimpsest
