// The mixers of a run, layer by layer. Internal to this floor.
#pragma once

#include "config/effect.h"

#include <cstddef>
#include <map>

namespace palimpsest {

// Fills run.mixers and run.layers from `mixers` and model.layers, whose names were read; options are read for every mixer that is
// named, used or not. Returns the resolved `mixers`. What the layers of a mixer have in common stands there, the rest in
// model.layers.
Value read_mixers(const Value& root, const Catalog& catalog, RunSpec& run, Effects& effects, Diagnostics& errors);

// Takes out of the maps what is the same in all that have the key; with `everywhere` only what all have.
Value take_shared(std::map<std::size_t, Value>& maps, bool everywhere);

}  // namespace palimpsest
