// The tables that this build contains; null where the set was not compiled in. Used by kernels.cpp alone.
#pragma once

#include "engine/kernels.hpp"

namespace perceptd::engine {

extern const KernelTable kPortableKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
#endif
#if defined(__aarch64__)
extern const KernelTable kNeonKernels;
extern const KernelTable kI8mmKernels;
#endif

}  // namespace perceptd::engine
