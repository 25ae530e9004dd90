// Where the checkout lies that these tests were built from. It is a function in one object file, so that the compiler's cache
// serves every checkout: as a definition on the command line it would make each test file another one in each folder.
#pragma once

#include <string>

namespace palimpsest {

std::string source_dir();

}  // namespace palimpsest
