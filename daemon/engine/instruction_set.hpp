// Which instruction set the kernels run on: chosen once from the processor, or forced by PERCEPTD_INSTRUCTION_SET.
// All sets give the same bits, so the choice is never visible in a result. Owns nothing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace perceptd::engine {

enum class InstructionSet : std::uint8_t {
    Portable,  ///< plain C++; the definition of the bits
    Avx2,      ///< x86-64 with AVX2, FMA and F16C
    Avx512,    ///< the same with AVX-512 F, BW, DQ, VL and VNNI
    Neon,      ///< AArch64 with dot product
    I8mm,      ///< the same with int8 matrix products
};

/// All, from the slowest to the fastest of each architecture.
inline constexpr std::array kInstructionSets{InstructionSet::Portable, InstructionSet::Avx2, InstructionSet::Avx512,
                                             InstructionSet::Neon, InstructionSet::I8mm};

constexpr std::string_view name_of(InstructionSet set) noexcept {
    switch (set) {
        case InstructionSet::Portable: return "portable";
        case InstructionSet::Avx2: return "avx2";
        case InstructionSet::Avx512: return "avx512";
        case InstructionSet::Neon: return "neon";
        case InstructionSet::I8mm: return "i8mm";
    }
    return "unknown";
}

/// The set that `name` names, or nothing.
std::optional<InstructionSet> instruction_set_of(std::string_view name) noexcept;

/// Whether this build and this processor can run `set`. Any thread.
bool is_available(InstructionSet set) noexcept;

/// The fastest available set, or the one that PERCEPTD_INSTRUCTION_SET names. Throws Error (InvalidConfiguration)
/// when that name is unknown or not available here. Set-up only.
InstructionSet chosen_instruction_set();

}  // namespace perceptd::engine
