// palimpsest doctor: reports what this machine has and what is wrong with it, as text for a bug report.
#include "cli/app.h"
#include "cli/output.h"
#include "cli/path_option.h"
#include "core/error.h"
#include "core/file.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/thread.h"
#include "core/version.h"
#include "store/run_lock.h"
#include "sweep/machine.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <sys/file.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace palimpsest::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t little_space = 1ll << 30;

struct Findings {
    std::vector<std::pair<std::string, std::string>> facts;
    std::vector<std::string> problems;
};

std::string file_system(const std::string& folder) {
    struct statfs info = {};
    if (::statfs(folder.c_str(), &info) != 0) return "unknown";
    switch (static_cast<std::uint32_t>(info.f_type)) {
        case 0xEF53: return "ext";
        case 0x58465342: return "xfs";
        case 0x9123683E: return "btrfs";
        case 0x01021994: return "tmpfs";
        case 0x794C7630: return "overlay";
        case 0x6969: return "nfs";
        case 0x0BD00BD0: return "lustre";
        case 0x47504653: return "gpfs";
        case 0xFF534D42:
        case 0xFE534D42: return "smb";
        case 0x65735546: return "fuse";
        case 0x2FC12FC1: return "zfs";
        default: return fmt::format("type 0x{:x}", static_cast<std::uint32_t>(info.f_type));
    }
}

// Returns the folder, or the nearest existing one above it: doctor creates nothing that stays.
std::string nearest_existing(const std::string& folder) {
    fs::path path = fs::absolute(folder).lexically_normal();
    while (!fs::exists(path) && path.has_relative_path()) path = path.parent_path();
    return path.string();
}

// Examines what runs need of a folder: exclusive creation (the LOCK) and rename over a file (every record). Locks of the file
// system only keep two sweeps with different plans out of one folder; whether they work also matters to HDF5's own tools.
void examine_folder(const std::string& results, Findings& found) {
    const std::string folder = nearest_existing(results);
    found.facts.emplace_back("results",
                             results + (folder_exists(results) ? "" : fmt::format(" (not there yet; looked at {})", folder)));
    found.facts.emplace_back("file system", file_system(folder));
    const std::int64_t space = free_bytes(folder);
    found.facts.emplace_back("free space", format_bytes(space));
    if (space < little_space) found.problems.push_back(fmt::format("only {} free in {}", format_bytes(space), folder));

    const std::string probe = fmt::format("{}/.palimpsest-doctor-{}", folder, ::getpid());
    try {
        const bool first = create_file(probe, "probe\n"), second = create_file(probe, "probe\n");
        found.facts.emplace_back("exclusive create", first && !second ? "works" : "does not work");
        if (!first || second)
            found.problems.push_back(
                fmt::format("two processes could start the same run in {}: exclusive create does not work there", folder));
        write_file_atomic(probe, "replaced\n");
        found.facts.emplace_back("rename over a file", read_file(probe) == "replaced\n" ? "works" : "does not work");
        const int descriptor = ::open(probe.c_str(), O_RDWR | O_CLOEXEC);
        const bool locks = descriptor >= 0 && ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
        found.facts.emplace_back("file locks", locks ? "work"
                                                     : "do not work (nothing keeps sweeps with different plans out of one folder; "
                                                       "HDF5's own tools may want HDF5_USE_FILE_LOCKING=FALSE)");
        if (descriptor >= 0) ::close(descriptor);
        remove_file(probe);
    } catch (const Error& error) {
        found.problems.push_back(error.what());
        ::unlink(probe.c_str());
    }
}

Findings examine(const std::string& results) {
    Findings found;
    found.facts = all_versions();
    const std::string header = build_info().hdf5;
    if (!hdf5_version().starts_with(header))
        found.problems.push_back(fmt::format("HDF5 differs: built with {}, running with {}", header, hdf5_version()));
    found.facts.emplace_back("processor", cpu_model());
    found.facts.emplace_back("usable threads", std::to_string(usable_threads()));
    found.facts.emplace_back("usable memory", format_bytes(static_cast<std::int64_t>(usable_memory())));
    const std::vector<std::string> gpus = gpu_models();
    found.facts.emplace_back("GPU", gpus.empty() ? "none" : join(gpus, ", "));
    if (!gpus.empty()) found.facts.emplace_back("GPU driver", gpu_driver());
    if (!gpus.empty() && libtorch_cuda() != "found")
        found.problems.push_back(fmt::format("there is a GPU, but CUDA cannot be used: {}", libtorch_cuda()));
    found.facts.emplace_back("host", host_name());
    examine_folder(results, found);
    return found;
}

ExitCode doctor(const std::string& results, bool json) {
    const Findings found = examine(results);
    if (json) {
        nlohmann::ordered_json facts = nlohmann::ordered_json::object();
        for (const auto& [name, value] : found.facts) facts[name] = value;
        print(nlohmann::ordered_json{{"facts", facts}, {"problems", found.problems}}.dump(2) + "\n");
    } else {
        for (const auto& [name, value] : found.facts) print(fmt::format("{:<20}{}\n", name, value));
        print(found.problems.empty() ? "\nnothing is wrong\n" : "\n");
        for (const std::string& problem : found.problems) print("problem: " + problem + "\n");
    }
    return found.problems.empty() ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace

void add_doctor(CLI::App& app, Session& session) {
    auto results = std::make_shared<std::string>("results");
    auto json = std::make_shared<bool>(false);
    CLI::App* verb = app.add_subcommand("doctor", "report what this machine has and what is wrong with it");
    add_path(*verb, "--results", *results, "the folder of results to look at");
    verb->add_flag("--json", *json, "print JSON");
    verb->callback([=, &session] { session.action = [=] { return doctor(*results, *json); }; });
}

}  // namespace palimpsest::cli
