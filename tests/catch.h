// Catch2 v2 (Debian 12) and v3 (Ubuntu 24.04) behind one include. Torch and Catch2 v2 both define CHECK: include torch first.
#pragma once

#ifdef CHECK
#undef CHECK
#endif
#ifdef PALIMPSEST_CATCH3
#include <catch2/catch_all.hpp>
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
inline auto ContainsSubstring(const std::string& text) { return Catch::Matchers::Contains(text); }
#endif
