// The registries of tasks and mixers as the config sees them.
#pragma once

#include "config/spec.h"

namespace palimpsest {

Catalog registry_catalog();

}  // namespace palimpsest
