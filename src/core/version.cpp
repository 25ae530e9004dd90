#include "core/version.h"

#include "build_config.h"  // written at configure time
#include "version_info.h"  // written at build time, when commit or dirty flag change

#include <fmt/format.h>
#include <spdlog/version.h>

namespace palimpsest {
namespace {

std::string dotted(int major, int minor, int patch) { return fmt::format("{}.{}.{}", major, minor, patch); }

}  // namespace

const BuildInfo& build_info() {
    static const BuildInfo info = {
        PALIMPSEST_VERSION,
        PALIMPSEST_COMMIT,
        PALIMPSEST_DIRTY,
        PALIMPSEST_COMPILER,
        PALIMPSEST_FLAGS,
        PALIMPSEST_BUILD_TYPE,
        dotted(FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100),
        dotted(SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH),
        PALIMPSEST_YAML_CPP_VERSION,
        PALIMPSEST_HDF5_VERSION,
        PALIMPSEST_CUDA_STATUS,
    };
    return info;
}

std::string short_commit() {
    const BuildInfo& info = build_info();
    return info.commit.substr(0, info.commit == "unknown" ? std::string::npos : 12) + (info.dirty ? "+" : "");
}

std::vector<std::pair<std::string, std::string>> version_lines() {
    const BuildInfo& info = build_info();
    return {{"palimpsest", info.version},    {"commit", info.commit + (info.dirty ? " with changes" : "")},
            {"compiler", info.compiler},     {"flags", info.flags},
            {"build type", info.build_type}, {"fmt", info.fmt},
            {"spdlog", info.spdlog},         {"yaml-cpp", info.yaml_cpp},
            {"HDF5 header", info.hdf5},      {"CUDA compiler", info.cuda}};
}

}  // namespace palimpsest
