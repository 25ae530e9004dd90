#include "code_changes.h"  // written at build time, when the sources change

#include "sweep/machine.h"

namespace palimpsest {

std::string code_changes() { return palimpsest_code_changes; }

}  // namespace palimpsest
