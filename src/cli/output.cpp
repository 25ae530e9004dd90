#include "cli/output.h"

#include "config/schema_fields.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "store/attributes.h"
#include "sweep/catalog.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sys/ioctl.h>
#include <unistd.h>

namespace palimpsest::cli {

namespace fs = std::filesystem;

void print(std::string_view text) {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    if (!written) fail(ExitCode::run_failed, "cannot write to stdout: {}", std::strerror(errno));
}

void print_json(const nlohmann::json& json) { print(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"); }

nlohmann::json to_json(const Attributes& attributes) {
    nlohmann::json out = nlohmann::json::object();
    for (const auto& [name, value] : attributes) std::visit([&, &key = name](const auto& v) { out[key] = v; }, value);
    return out;
}

nlohmann::json to_json(const Value& value) {
    switch (value.kind) {
        case Value::Kind::null: return nullptr;
        case Value::Kind::list: {
            nlohmann::json list = nlohmann::json::array();
            for (const Value& item : value.items) list.push_back(to_json(item));
            return list;
        }
        case Value::Kind::map: {
            nlohmann::json map = nlohmann::json::object();
            for (const Value::Entry& entry : value.entries) map[entry.key] = to_json(entry.value);
            return map;
        }
        case Value::Kind::scalar: break;
    }
    const Attribute native = flat_config(value).front().second;
    if (!value.quoted && (value.text == "true" || value.text == "false")) return value.text == "true";
    return std::visit([](const auto& v) { return nlohmann::json(v); }, native);
}

std::size_t stdout_width() {
    winsize size{};
    return ::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string age_text(double seconds) {
    if (!std::isfinite(seconds) || seconds < 0) return "-";
    if (seconds < 120) return fmt::format("{:.0f} s", seconds);
    if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
    return seconds < 172'800 ? fmt::format("{:.0f} h", seconds / 3600) : fmt::format("{:.0f} d", seconds / 86'400);
}

std::string value_text(double value) {
    if (!std::isfinite(value)) return "-";
    // Shares get three digits, 1.000 beside 0.998; counts get none.
    const bool count = std::abs(value) > 1 && value == std::round(value);
    return std::abs(value) < 1000 && !count ? fmt::format("{:.3f}", value) : fmt::format("{:.0f}", value);
}

std::vector<std::string> config_folders() {
    std::vector<std::string> folders = {"configs"};
    std::error_code ignored;  // an absent link is no error
    for (fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path(); folder.has_relative_path();
         folder = folder.parent_path())
        for (const char* name : {"configs", "share/palimpsest/configs"}) {
            const fs::path configs = folder / name;
            if (!fs::is_directory(configs / "tasks", ignored)) continue;
            if (!fs::equivalent(configs, "configs", ignored)) folders.push_back(configs.string());
            return folders;
        }
    return folders;
}

Experiment load_config(const std::string& path, const std::vector<std::string>& overrides, const std::string& only) {
    return load_experiment(path, overrides, registry_catalog(), config_folders(), only);
}

}  // namespace palimpsest::cli
