// The mixers of a run, layer by layer. Internal to this floor.
#pragma once

#include "config/effect.h"

#include <cstddef>
#include <map>

namespace palimpsest {

// Fills run.mixers and run.layers from `mixers` and from model.layers, whose names were read. Options are read for every mixer that
// is named, used or not. Returns the resolved `mixers` with what a mixer's layers have in common; the rest is in model.layers.
Value read_mixers(const Value& root, const Catalog& catalog, RunSpec& run, Effects& effects, Diagnostics& errors);

// Moves the values that are the same in all maps holding the key out of the maps; with `everywhere` only those that all maps hold.
Value take_shared(std::map<std::size_t, Value>& maps, bool everywhere);

}  // namespace palimpsest
