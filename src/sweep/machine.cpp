#include "sweep/machine.h"

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "core/thread.h"
#include "core/time.h"
#include "core/version.h"

#include <ATen/Context.h>
#include <ATen/Version.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <unistd.h>

#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else
#include <torch/version.h>
#endif

namespace palimpsest {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_diff = 1 << 20;

// The text after "key : " in a file of such lines; "" when there is none.
std::string field(const std::string& path, const std::string& key) {
    std::string text;
    try {
        text = read_file(path);
    } catch (const Error&) {
        return "";
    }
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with(key)) continue;
        const std::size_t colon = line.find(':');
        if (colon == std::string::npos) continue;
        const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
        return begin == std::string::npos ? "" : line.substr(begin);
    }
    return "";
}

// What a command prints; "" when it fails. `arguments` are quoted for the shell.
std::string output_of(const std::vector<std::string>& arguments) {
    std::string command;
    for (const std::string& argument : arguments) {
        command += " '";
        for (const char c : argument) command += c == '\'' ? std::string("'\\''") : std::string(1, c);
        command += "'";
    }
    std::FILE* pipe = ::popen((command + " 2>/dev/null").c_str(), "r");
    if (pipe == nullptr) return "";
    std::string text;
    std::array<char, 4096> buffer;
    while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
        if (text.size() < longest_diff) text.append(buffer.data(), size);
    }
    return ::pclose(pipe) == 0 ? text : "";
}

std::string trimmed(std::string text) {
    text.erase(text.find_last_not_of(" \t\n") + 1);
    return text;
}

}  // namespace

std::string host_name() {
    char name[256] = "";
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string cpu_model() {
    const std::string model = field("/proc/cpuinfo", "model name");
    return model.empty() ? "unknown" : model;
}

std::vector<std::string> gpu_models() {
    std::vector<std::string> models;
    std::error_code error;
    for (fs::directory_iterator entry("/proc/driver/nvidia/gpus", error), end; !error && entry != end; entry.increment(error))
        models.push_back(field((entry->path() / "information").string(), "Model"));
    return models;
}

std::string gpu_driver() {
    const std::string version = field("/proc/driver/nvidia/version", "NVRM version");
    return version;
}

std::string libtorch_version() { return TORCH_VERSION; }

std::string libtorch_cuda() {
    if (!at::Context::hasCUDART()) return "this build has none";
    return at::Context::hasCUDA() ? "found" : "no GPU found";
}

std::string code_changes() {
    const BuildInfo& build = build_info();
    if (!build.dirty || build.commit == "unknown") return "";
    std::error_code error;
    const fs::path program = fs::read_symlink("/proc/self/exe", error);
    if (error) return "";
    const std::string folder = program.parent_path().string();
    if (trimmed(output_of({"git", "-C", folder, "rev-parse", "HEAD"})) != build.commit) return "";
    const std::string root = trimmed(output_of({"git", "-C", folder, "rev-parse", "--show-toplevel"}));
    return output_of({"git", "-C", root, "diff", "--no-color", "HEAD"});
}

Attributes process_provenance(const std::vector<std::string>& command) {
    const BuildInfo& build = build_info();
    std::error_code error;
    Attributes facts = {
        {"command", shell_line(command)},
        {"working_directory", fs::current_path(error).string()},
        {"started", now_utc()},
        {"version", build.version},
        {"commit", build.commit},
        {"dirty", static_cast<std::int64_t>(build.dirty)},
        {"compiler", build.compiler},
        {"compiler_flags", build.flags},
        {"build_type", build.build_type},
        {"libtorch", libtorch_version()},
        {"libtorch_cpu", std::string(at::get_cpu_capability())},
        {"cuda_compiler", build.cuda},
        {"hdf5_header", build.hdf5},
        {"hdf5", hdf5_version()},
        {"fmt", build.fmt},
        {"yaml_cpp", build.yaml_cpp},
        {"host", host_name()},
        {"pid", static_cast<std::int64_t>(::getpid())},
        {"cpu", cpu_model()},
        {"usable_threads", static_cast<std::int64_t>(usable_threads())},
    };
    if (const std::vector<std::string> gpus = gpu_models(); !gpus.empty()) {
        facts.emplace_back("gpus", join(gpus, ", "));
        facts.emplace_back("gpu_driver", gpu_driver());
    }
    for (const char* name : {"SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT", "PBS_JOBID", "LSB_JOBID"}) {
        if (const char* value = std::getenv(name)) facts.emplace_back(name, std::string(value));
    }
    return facts;
}

}  // namespace palimpsest
