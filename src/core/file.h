// Files that are whole or absent. Every error names the path and the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

std::string read_file(const std::string& path, std::size_t most = static_cast<std::size_t>(-1));  // its first `most` bytes

// A file that appears under its name only when it is complete: written beside it, fsync, rename, fsync of the folder. A reader sees
// the old content or the new, whatever is killed when. Destroyed before commit(), it leaves nothing behind.
class AtomicFile {
public:
    explicit AtomicFile(std::string path);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    void write(const void* data, std::size_t size);
    void write(std::string_view text) { write(text.data(), text.size()); }
    void commit();            // replaces what was there
    bool commit_if_absent();  // false, and nothing changed, when the name is taken

private:
    void finish();
    bool take_name();

    std::string path_, temporary_;
    int descriptor_ = -1;
    bool exists_ = false;
};

void write_file_atomic(const std::string& path, std::string_view content);
// Exclusive: of several processes that create one name, exactly one gets true. The content is complete when the name appears; only
// where the file system knows neither hard links nor a rename that replaces nothing may the name be seen empty for a moment.
bool create_file(const std::string& path, std::string_view content);

// The two calls that give a whole file its name exclusively. File systems lack the one, the other or both: tests put such failures
// here.
struct ExclusiveCalls {
    int (*link)(const char* from, const char* to);
    int (*rename)(const char* from, const char* to);  // fails with EEXIST where `to` is there
};
ExclusiveCalls& exclusive_calls();

// A lock of the kernel on a file that is made for it (flock). It ends with its holder, however that ends. Where the file system has
// no such locks nothing is held, and nobody is kept out.
class FileLock {
public:
    explicit FileLock(const std::string& path);
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

    bool try_alone();  // false where another process holds the lock, alone or shared; then this one holds nothing
    void share();      // waits while another process holds it alone

private:
    int descriptor_ = -1;
};

bool file_exists(const std::string& path);  // a regular file
bool folder_exists(const std::string& path);
void make_folders(const std::string& path);                        // with its parents; no error when it is there
void remove_file(const std::string& path);                         // no error when it is not there
std::vector<std::string> list_files(const std::string& folder);    // names, sorted; temporary files of AtomicFile left out
std::vector<std::string> list_folders(const std::string& folder);  // names, sorted
void sync_folder(const std::string& folder);                       // makes a rename inside it durable
std::int64_t free_bytes(const std::string& path);                  // on the file system that holds it

}  // namespace palimpsest
