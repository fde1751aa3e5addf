// Which instruction sets the row kernels are compiled for: those that differ only in instructions not used here are left out.
#pragma once

#include <hwy/detect_targets.h>

#undef HWY_DISABLED_TARGETS
#if defined(__SANITIZE_ADDRESS__)
// Compiling takes minutes a target there: SSE2 and AVX2 (on ARM, NEON) are enough to see.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | (2 * HWY_AVX3 - 1))
#elif defined(HWY_AVX3_SPR)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif
