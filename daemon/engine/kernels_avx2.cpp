// The kernels on AVX2, FMA and F16C.
// Its compiler flags are its own (meson.build): no other file may inline from here, which is why the lanes and all
// templates over them have internal linkage.

#include "engine/lanes_avx2.inl"

namespace perceptd::engine {
namespace {

using Lanes = Avx2Lanes;

}  // namespace
}  // namespace perceptd::engine

// The templates need the lanes first.
#include "engine/kernel_table.inl"
#include "engine/kernel_tables.hpp"

namespace perceptd::engine {

const KernelTable kAvx2Kernels = table_of(InstructionSet::Avx2);

}  // namespace perceptd::engine
