// Helpers of the config tests.
#pragma once

#include "config/value.h"
#include "core/error.h"

#include <string>

// The message of the Error that `action` throws; "" when it throws none.
template <class Action>
std::string error_of(const Action& action) {
    try {
        action();
    } catch (const palimpsest::Error& error) {
        return error.what();
    }
    return "";
}

// The report on a YAML text named "f.yaml".
inline std::string yaml_error(const std::string& text) {
    return error_of([&] { palimpsest::parse_yaml("f.yaml", text); });
}

// Its first line without "error: ": "f.yaml:3:1: duplicate key …".
inline std::string first_line(const std::string& report) {
    std::string line = report.substr(0, report.find('\n'));
    const auto at = line.find("error: ");
    return at == std::string::npos ? line : line.erase(at, 7);
}
