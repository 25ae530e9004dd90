// The states of a run, as its folder tells them (run_folder.h) and as the files have them.
#pragma once

#include <cstddef>
#include <string_view>

namespace palimpsest {

enum class RunState { fresh, running, finished, failed, interrupted, lost };

// The names of the states in order of their codes. They stand in files: never renumber them.
inline constexpr std::string_view state_names[] = {"fresh", "running", "finished", "failed", "interrupted", "lost"};

inline const char* to_string(RunState state) { return state_names[static_cast<std::size_t>(state)].data(); }

}  // namespace palimpsest
