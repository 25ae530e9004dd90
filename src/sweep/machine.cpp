#include "sweep/machine.h"

#include "core/text.h"
#include "core/thread.h"
#include "core/time.h"
#include "core/version.h"
#include "store/run_lock.h"
#include "store/run_reader.h"

#include <ATen/Context.h>
#include <ATen/Version.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else
#include <torch/version.h>
#endif

namespace palimpsest {
namespace {

namespace fs = std::filesystem;

// The text after "key : " in a file of such lines; "" when there is none.
std::string field(const std::string& path, const std::string& key) {
    std::ifstream lines(path);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t colon = line.find(':');
        if (!line.starts_with(key) || colon == std::string::npos) continue;
        const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
        return begin == std::string::npos ? "" : line.substr(begin);
    }
    return "";
}

}  // namespace

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

std::string gpu_driver() { return field("/proc/driver/nvidia/version", "NVRM version"); }

std::string libtorch_version() { return TORCH_VERSION; }

std::string libtorch_cuda() {
    if (!at::Context::hasCUDART()) return "this build has none";
    return at::Context::hasCUDA() ? "found" : "no GPU found";
}

Attributes process_provenance(const std::string& command) {
    const BuildInfo& build = build_info();
    std::error_code error;
    Attributes facts = {
        {"command", command},
        {"working_directory", fs::current_path(error).string()},
        {"started", now_utc()},
        {"version", build.version},
        {"commit", build.commit},
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
    if (build.commit != "unknown") facts.emplace_back("dirty", static_cast<std::int64_t>(build.dirty));
    if (const std::vector<std::string> gpus = gpu_models(); !gpus.empty()) {
        facts.emplace_back("gpus", join(gpus, ", "));
        facts.emplace_back("gpu_driver", gpu_driver());
    }
    for (const char* name :
         {"SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT", "PBS_JOBID", "LSB_JOBID"}) {
        if (const char* value = std::getenv(name)) facts.emplace_back(name, std::string(value));
    }
    return facts;
}

}  // namespace palimpsest
