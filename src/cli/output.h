// How verbs print, and how they find configs.
#pragma once

#include "config/spec.h"
#include "store/collect.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace palimpsest::cli {

void print(std::string_view text);  // to stdout; throws Error(run_failed) where writing fails
void print_json(const nlohmann::json& json);

nlohmann::json to_json(const Attributes& attributes);
nlohmann::json to_json(const Value& value);

std::size_t stdout_width();            // columns of the terminal on stdout; 0 where stdout is no terminal
std::string age_text(double seconds);  // "12 s", "3 min", "5 h", "2 d"
std::string value_text(double value);  // "0.998", "12345", "-" when not finite

// Returns the folders where configs and bases are looked for: configs/ in the working directory, and in the tree (configs/) or the
// installation (share/palimpsest/configs/) that this program is in.
std::vector<std::string> config_folders();
Experiment load_config(const std::string& path, const std::vector<std::string>& overrides, const std::string& only = "");

}  // namespace palimpsest::cli
