// Which instruction sets vector code is compiled for: those that differ only in instructions not used here are left out, and,
// for code that keeps vectors in arrays (KULLBACK_VECTOR_ARRAYS), those whose vectors have no size when it is compiled.
#pragma once

#include <hwy/detect_targets.h>

#ifdef KULLBACK_VECTOR_ARRAYS
#define KULLBACK_UNSIZED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#else
#define KULLBACK_UNSIZED_TARGETS 0
#endif

#undef HWY_DISABLED_TARGETS
#if defined(__SANITIZE_ADDRESS__)
// Compiling takes minutes a target there: SSE2 and AVX2 (on ARM, NEON) are enough to see.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | (2 * HWY_AVX3 - 1) | KULLBACK_UNSIZED_TARGETS)
#elif defined(HWY_AVX3_SPR)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | KULLBACK_UNSIZED_TARGETS)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | KULLBACK_UNSIZED_TARGETS)
#endif
