#!/usr/bin/env python3
"""Golden noise: the counter bits in Python's integers, -log(-log u) in decimal arithmetic of 40 digits (nothing shared
with the C++), and the same formula as portable_math.cpp in Python's IEEE doubles, whose bits must be met exactly.
Usage: make_noise_golden.py > noise_golden.hpp"""
import math
import random
import struct
from decimal import Decimal, getcontext

getcontext().prec = 40
MASK = (1 << 64) - 1
GOLDEN = 0x9e3779b97f4a7c15


def mixed(key):
    key = ((key ^ (key >> 30)) * 0xbf58476d1ce4e5b9) & MASK
    key = ((key ^ (key >> 27)) * 0x94d049bb133111eb) & MASK
    return key ^ (key >> 31)


def bits_of(seed, position, token):
    key = mixed(mixed((seed + GOLDEN) & MASK) ^ ((position * GOLDEN) & MASK))
    return mixed((key + (token + 1) * GOLDEN) & MASK)


def portable_log(x):
    mantissa, exponent = math.frexp(x)  # [0.5, 1)
    mantissa, exponent = mantissa * 2, exponent - 1
    if mantissa > float.fromhex("0x1.6a09e667f3bcdp+0"):
        mantissa, exponent = mantissa * 0.5, exponent + 1
    f = mantissa - 1.0
    s = f / (2.0 + f)
    z = s * s
    series = 0.0
    for n in range(23, 2, -2):
        series = series * z + 2.0 / n
    half_square = 0.5 * f * f
    rest = s * (half_square + series * z)
    return exponent * float.fromhex("0x1.62e42feep-1") - (
        (half_square - (rest + exponent * float.fromhex("0x1.a39ef35793c76p-33"))) - f)


def double_bits(x):
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def main():
    draw = random.Random(1)
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (MASK, 0xFFFFFFFF, 0xFFFFFFFF)]
    keys += [(draw.getrandbits(64), draw.getrandbits(20), draw.getrandbits(17)) for _ in range(59)]
    print("// Made by make_noise_golden.py. {seed, position, token, counter bits, bits of the double, decimal value}")
    print("#pragma once\n\n#include <cstdint>\n\nnamespace perceptd::generate::test {\n")
    print("struct GoldenNoise {\n    std::uint64_t seed;\n    std::uint32_t position;\n    std::uint32_t token;\n"
          "    std::uint64_t bits;\n    std::uint64_t gumbel_bits;\n    double gumbel;\n};\n")
    print("inline constexpr GoldenNoise kGoldenNoise[] = {")
    for seed, position, token in keys:
        bits = bits_of(seed, position, token)
        k = bits >> 12
        u = Decimal(2 * k + 1) / Decimal(2) ** 53
        exact = -(-u.ln()).ln()
        double = -portable_log(-portable_log((2.0 * k + 1.0) * 2.0 ** -53))
        assert abs(Decimal(double) - exact) < Decimal("1e-14") * max(1, abs(exact))
        print(f"    {{0x{seed:x}, 0x{position:x}, 0x{token:x}, 0x{bits:x},")
        print(f"     0x{double_bits(double):x}, {exact:.20f}}},")
    print("};\n\n}  // namespace perceptd::generate::test")


main()
