// Times in records: UTC, ISO 8601.
#pragma once

#include <chrono>
#include <string>

namespace palimpsest {

std::string iso8601_utc(std::chrono::system_clock::time_point time);  // "2026-03-01T09:05:00Z"
std::string now_utc();

}  // namespace palimpsest
