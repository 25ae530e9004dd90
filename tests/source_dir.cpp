#include "source_dir.h"

namespace palimpsest {

std::string source_dir() { return PALIMPSEST_SOURCE_DIR; }

}  // namespace palimpsest
