// What verbs print and how they find things.
#pragma once

#include "config/spec.h"
#include "store/collect.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace palimpsest::cli {

void print(std::string_view text);  // to stdout; Error(run_failed) when it cannot be written
void print_json(const nlohmann::json& json);

nlohmann::json to_json(const Attributes& attributes);
nlohmann::json to_json(const Value& value);

std::size_t stdout_width();            // columns of the terminal that stdout is; 0 where it is none
std::string age_text(double seconds);  // "12 s", "3 min", "5 h", "2 d"
std::string value_text(double value);  // "0.998", "12345", "-" when not finite

// Configs and bases are looked for in the configs/ beside us, and in that of the tree (configs/) or of the installation
// (share/palimpsest/configs/) in which this program stands.
std::vector<std::string> config_folders();
Experiment load_config(const std::string& path, const std::vector<std::string>& overrides, const std::string& only = "");

}  // namespace palimpsest::cli
