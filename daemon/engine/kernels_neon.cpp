// The kernels on AArch64 with dot product.
// Its compiler flags are its own (meson.build): no other file may inline from here, which is why the lanes and all
// templates over them have internal linkage.

#include "engine/lanes_neon.inl"

namespace perceptd::engine {
namespace {

using Lanes = NeonLanes;

}  // namespace
}  // namespace perceptd::engine

// The templates need the lanes first.
#include "engine/kernel_table.inl"
#include "engine/kernel_tables.hpp"

namespace perceptd::engine {

const KernelTable kNeonKernels = table_of(InstructionSet::Neon);

}  // namespace perceptd::engine
