#include "yardstick.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "base/clock.hpp"
#include "base/error.hpp"

namespace perceptd::bench {
namespace {

using Words = std::uint64_t __attribute__((vector_size(32)));

#if defined(__x86_64__)
__attribute__((target("avx2"), noinline))
#else
__attribute__((noinline))
#endif
std::uint64_t
read_all(const std::byte* from, std::size_t size_bytes) {
    const auto* words = reinterpret_cast<const Words*>(from);
    Words sums[8] = {};
    for (std::size_t i = 0; i < size_bytes / sizeof(Words); i += 8) {
#pragma GCC unroll 8
        for (std::size_t j = 0; j < 8; ++j) {
            sums[j] |= words[i + j];
        }
    }
    const Words all = (sums[0] | sums[1]) | (sums[2] | sums[3]) | (sums[4] | sums[5]) | (sums[6] | sums[7]);
    return all[0] | all[1] | all[2] | all[3];
}

constexpr std::size_t kPeakRounds = 400'000;
constexpr std::size_t kPeakChains = 12;

#if defined(__x86_64__)
__attribute__((target("avx2"), noinline)) std::size_t multiply_adds() {
    __m256i sums[kPeakChains];
    for (__m256i& sum : sums) {
        sum = _mm256_setzero_si256();
    }
    __m256i a = _mm256_set1_epi8(3);
    __m256i b = _mm256_set1_epi8(5);
    const __m256i ones = _mm256_set1_epi16(1);
    asm volatile("" : "+x"(a), "+x"(b));
    for (std::size_t i = 0; i < kPeakRounds; ++i) {
#pragma GCC unroll 12
        for (__m256i& sum : sums) {
            __m256i pairs = _mm256_maddubs_epi16(a, b);
            asm volatile("" : "+x"(pairs));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
        }
    }
    for (__m256i& sum : sums) {
        asm volatile("" : : "x"(sum));
    }
    return kPeakRounds * kPeakChains * 32;
}
#elif defined(__ARM_FEATURE_DOTPROD)
__attribute__((noinline)) std::size_t multiply_adds() {
    int32x4_t sums[kPeakChains] = {};
    int8x16_t a = vdupq_n_s8(3);
    asm volatile("" : "+w"(a));
    for (std::size_t i = 0; i < kPeakRounds; ++i) {
#pragma GCC unroll 12
        for (int32x4_t& sum : sums) {
            sum = vdotq_s32(sum, a, a);
        }
        asm volatile("" : "+w"(a));
    }
    for (int32x4_t& sum : sums) {
        asm volatile("" : : "w"(sum));
    }
    return kPeakRounds * kPeakChains * 16;
}
#else
std::size_t multiply_adds() {
    return 0;
}
#endif

void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(cpu), &set);
    ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
}

}  // namespace

double read_gbps(engine::WorkerTeam& team, const engine::HugeBuffer& buffer) {
    std::atomic<std::uint64_t> seen{0};
    // Pieces as an operation would take them, so that a slow worker does not leave the other idle.
    constexpr std::size_t kPieceBytes = 256 * 1024;
    auto program = [&](engine::Worker& worker) noexcept {
        std::uint64_t any = 0;
        worker.share(buffer.size_bytes() / kPieceBytes,
                     [&](std::size_t piece) { any |= read_all(buffer.data() + piece * kPieceBytes, kPieceBytes); });
        seen.fetch_or(any);
    };
    const std::int64_t begin_ns = monotonic_ns();
    team.run(program);
    return static_cast<double>(buffer.size_bytes()) / static_cast<double>(monotonic_ns() - begin_ns);
}

double int8_peak_gops(engine::WorkerTeam& team) {
    std::atomic<std::size_t> done{0};
    auto program = [&](engine::Worker& worker) noexcept {
        worker.share(8, [&](std::size_t) { done.fetch_add(multiply_adds()); });
    };
    const std::int64_t begin_ns = monotonic_ns();
    team.run(program);
    return 2.0 * static_cast<double>(done.load()) / static_cast<double>(monotonic_ns() - begin_ns);
}

double spin_pingpong_us(int first_cpu, int second_cpu) {
    constexpr int kRounds = 20'000;
    alignas(64) std::atomic<int> ping{0};
    alignas(64) std::atomic<int> pong{0};
    std::thread other([&] {
        pin(second_cpu);
        for (int i = 1; i <= kRounds; ++i) {
            while (ping.load(std::memory_order_acquire) != i) {
            }
            pong.store(i, std::memory_order_release);
        }
    });
    std::vector<double> times;
    times.reserve(kRounds);
    std::thread self([&] {
        pin(first_cpu);
        for (int i = 1; i <= kRounds; ++i) {
            const std::int64_t begin_ns = monotonic_ns();
            ping.store(i, std::memory_order_release);
            while (pong.load(std::memory_order_acquire) != i) {
            }
            times.push_back(static_cast<double>(monotonic_ns() - begin_ns) / 1000.0);
        }
    });
    other.join();
    self.join();
    return median(times);
}

double median(std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0.0 : values[values.size() / 2];
}

}  // namespace perceptd::bench
