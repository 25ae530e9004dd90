// How the CPU loops are compiled: once for every x86 level that matters, chosen when the program starts, so that one binary is fast
// on old and new machines. Loops stay plain C++; the compiler vectorises them.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define PALIMPSEST_SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PALIMPSEST_SIMD
#endif
// Everything that a PALIMPSEST_SIMD function calls must be inlined into it, or it is compiled for the oldest machine.
#define PALIMPSEST_INLINE inline __attribute__((always_inline))
#define PALIMPSEST_INLINE_LAMBDA __attribute__((always_inline))
