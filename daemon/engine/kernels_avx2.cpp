// The kernels on the Avx2 lanes. Its compiler flags are its own (meson.build): no other file may inline from here,
// which is why all templates have internal linkage.
#include "engine/lanes_avx2.hpp"

// The templates need the lanes first.
#include "engine/kernel_table.hpp"
#include "engine/kernel_tables.hpp"

namespace perceptd::engine {

const KernelTable kAvx2Kernels = table_of(InstructionSet::Avx2);

}  // namespace perceptd::engine
