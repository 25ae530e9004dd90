// A resolved config as the records have it.
#pragma once

#include "config/value.h"
#include "store/attributes.h"

namespace palimpsest {

// A value in its own type; true and false stay words: there is no boolean that every reader knows.
Attribute native(const Value& value);
// One attribute per value of the resolved config, by dotted key.
Attributes flat_config(const Value& resolved);

}  // namespace palimpsest
