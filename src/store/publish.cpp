#include "core/error.h"
#include "core/file.h"
#include "store/layout.h"

#include <ctime>
#include <filesystem>

namespace palimpsest {

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    char text[32];
    return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts));
}

void publish(const std::string& path, const std::string& image) {
    try {
        write_file_atomic(path, image);
    } catch (const Error& error) {
        const std::string folder = std::filesystem::absolute(path).parent_path().string();
        std::error_code unknown;
        const std::filesystem::space_info space = std::filesystem::space(folder, unknown);
        if (unknown) throw Error(ExitCode::run_failed, error.what());
        fail(ExitCode::run_failed, "{} ({} bytes free in '{}', {} needed)", error.what(), space.available, folder, image.size());
    }
}

}  // namespace palimpsest
