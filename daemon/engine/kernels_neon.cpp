// The kernels on the Neon lanes. Its compiler flags are its own (meson.build): no other file may inline from here,
// which is why all templates have internal linkage.
#include "engine/lanes_neon.hpp"

// The templates need the lanes first.
#include "engine/kernel_table.hpp"
#include "engine/kernel_tables.hpp"

namespace perceptd::engine {

const KernelTable kNeonKernels = table_of(InstructionSet::Neon);

}  // namespace perceptd::engine
