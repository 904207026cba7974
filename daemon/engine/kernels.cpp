#include "engine/kernels.hpp"

#include <cstdlib>
#include <string>

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/error.hpp"
#include "engine/kernel_tables.hpp"

namespace perceptd::engine {
namespace {

const KernelTable* compiled_table(InstructionSet set) noexcept {
    switch (set) {
        case InstructionSet::Portable: return &kPortableKernels;
        case InstructionSet::Avx2:
#if defined(__x86_64__)
            return &kAvx2Kernels;
#else
            return nullptr;
#endif
        case InstructionSet::Avx512:
#if defined(__x86_64__)
            return &kAvx512Kernels;
#else
            return nullptr;
#endif
        case InstructionSet::Neon:
#if defined(__aarch64__)
            return &kNeonKernels;
#else
            return nullptr;
#endif
        case InstructionSet::I8mm:
#if defined(__aarch64__)
            return &kI8mmKernels;
#else
            return nullptr;
#endif
    }
    return nullptr;
}

#if defined(__x86_64__)
/// Not among the names that every compiler's __builtin_cpu_supports() knows.
bool has_f16c() noexcept {
    constexpr unsigned kF16c = 1U << 29U;
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kF16c) != 0;
}
#endif

bool processor_has(InstructionSet set) noexcept {
    switch (set) {
        case InstructionSet::Portable: return true;
        case InstructionSet::Avx2:
#if defined(__x86_64__)
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
#else
            return false;
#endif
        case InstructionSet::Avx512:
#if defined(__x86_64__)
            return processor_has(InstructionSet::Avx2) && __builtin_cpu_supports("avx512f") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
#else
            return false;
#endif
        case InstructionSet::Neon:
#if defined(__aarch64__)
            return (::getauxval(AT_HWCAP) & (1UL << 20U)) != 0;  // HWCAP_ASIMDDP
#else
            return false;
#endif
        case InstructionSet::I8mm:
#if defined(__aarch64__)
            return processor_has(InstructionSet::Neon) && (::getauxval(AT_HWCAP2) & (1UL << 13U)) != 0;  // HWCAP2_I8MM
#else
            return false;
#endif
    }
    return false;
}

}  // namespace

std::optional<InstructionSet> instruction_set_of(std::string_view name) noexcept {
    for (const InstructionSet set : kInstructionSets) {
        if (name == name_of(set)) {
            return set;
        }
    }
    return std::nullopt;
}

bool is_available(InstructionSet set) noexcept {
    return compiled_table(set) != nullptr && processor_has(set);
}

InstructionSet chosen_instruction_set() {
    const char* forced = std::getenv("PERCEPTD_INSTRUCTION_SET");
    if (forced != nullptr && *forced != '\0') {
        const std::optional<InstructionSet> set = instruction_set_of(forced);
        if (!set.has_value() || !is_available(*set)) {
            throw Error(ErrorCode::InvalidConfiguration, "PERCEPTD_INSTRUCTION_SET is \"" + std::string(forced) +
                                                             "\", which is not available here; use portable, avx2 or "
                                                             "avx512 (x86-64), neon or i8mm (AArch64) or unset it");
        }
        return *set;
    }
    for (const InstructionSet set :
         {InstructionSet::Avx512, InstructionSet::Avx2, InstructionSet::I8mm, InstructionSet::Neon}) {
        if (is_available(set)) {
            return set;
        }
    }
    return InstructionSet::Portable;
}

const KernelTable& kernels_of(InstructionSet set) {
    if (!is_available(set)) {
        throw Error(ErrorCode::Unsupported, "the instruction set " + std::string(name_of(set)) +
                                                " is not available on this processor or in this build");
    }
    return *compiled_table(set);
}

}  // namespace perceptd::engine
