#!/usr/bin/env python3
"""Makes block_golden.hpp: quantized rows and their exact meaning, in numpy from the formats' definitions only.

Run: /usr/bin/python3 make_block_golden.py > block_golden.hpp
Weights come from an LCG, as integers / 4096, so the C++ test makes the same ones. Blocks to decode are LCG bytes with
sane scales. INT4 is the definition in int4.hpp, vectorised over the 16 points of the grid.
"""
import numpy as np

f32, f16 = np.float32, np.float16


def lcg(seed, count):
    out, state = [], seed
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append(state >> 16)
    return np.array(out)


def weights(seed, count):
    return ((lcg(seed, count) - 32768) / 4096).astype(f32)


def hexes(data):
    return "".join(f"{b:02x}" for b in bytes(data))


def emit(name, data):
    print(f'inline constexpr const char* {name} = "{hexes(data)}";')


def half(x):
    return np.array([x], dtype=f16).view(np.uint8).tobytes()


def q8_0(w):
    d = f32(np.abs(w).max() / f32(127))
    q = w * (f32(1) / d)
    return half(d) + np.trunc(q + np.copysign(f32(0.5), q)).astype(np.int8).tobytes()


def nibbles(q):
    return (q[:16] | q[16:] << 4).astype(np.uint8).tobytes()


def q4_0(w):
    d = f32(w[np.argmax(np.abs(w))] / f32(-8))
    return half(d) + nibbles(np.minimum(15, np.floor(w * (f32(1) / d) + f32(8.5))).astype(int))


def q4_1(w):
    d = f32((w.max() - w.min()) / f32(15))
    return half(d) + half(w.min()) + nibbles(np.minimum(15, np.floor((w - w.min()) * (f32(1) / d) + f32(0.5))).astype(int))


def decode_q4_k(block):
    d, m = block[:4].view(f16).astype(f32)
    p, q = block[4:16].astype(int), block[16:]
    sc = [p[j] & 63 for j in range(4)] + [(p[j + 8] & 15) | (p[j] >> 6 << 4) for j in range(4)]
    mn = [p[j + 4] & 63 for j in range(4)] + [(p[j + 8] >> 4) | (p[j + 4] >> 6 << 4) for j in range(4)]
    out = []
    for chunk in range(4):
        part = q[32 * chunk:32 * chunk + 32]
        for codes, j in ((part & 15, 2 * chunk), (part >> 4, 2 * chunk + 1)):
            out.append(f32(d * f32(sc[j])) * codes.astype(f32) - f32(m * f32(mn[j])))
    return np.concatenate(out)


def decode_q6_k(block):
    ql, qh, sc, d = block[:128].astype(int), block[128:192].astype(int), block[192:208].view(np.int8), block[208:].view(f16)[0]
    out = np.zeros(256, dtype=f32)
    for h in range(2):
        for l in range(32):
            low, low2, high = ql[64 * h + l], ql[64 * h + 32 + l], qh[32 * h + l]
            quads = [(low & 15) | (high & 3) << 4, (low2 & 15) | (high >> 2 & 3) << 4, (low >> 4) | (high >> 4 & 3) << 4,
                     (low2 >> 4) | (high >> 6 & 3) << 4]
            for k, code in enumerate(quads):
                i = 128 * h + 32 * k + l
                out[i] = f32(f32(d) * f32(sc[i // 16])) * f32(code - 32)
    return out


def int4_row(w, h, group):
    k = len(w)
    nib, scales, zeros = np.zeros(k + k % 2, int), b"", []
    for first in range(0, k, group):
        part, imp = w[first:first + group].astype(np.float64), h[first:first + group].astype(np.float64)
        lo, hi = min(0.0, part.min()), max(0.0, part.max())
        best = (np.inf, 0.0, 0, np.zeros(len(part), int))
        for j in range(8):
            s = float(f16(f32((hi - lo) / 15 * (32 - j) / 32)))
            if s == 0:
                continue
            for z in (np.floor(-lo / s), np.ceil(-lo / s)):
                z = int(np.clip(z, 0, 15))
                q = np.clip(np.rint(part / s) + z, 0, 15).astype(int)
                error = 0.0
                for term in imp * (part - s * (q - z)) ** 2:
                    error += term
                if error < best[0]:
                    best = (error, s, z, q)
        nib[first:first + group] = best[3]
        scales += half(best[1])
        zeros.append(best[2])
    zeros += [0] * (len(zeros) % 2)
    pack = lambda v: bytes(int(a) | int(b) << 4 for a, b in zip(v[::2], v[1::2]))
    return pack(nib) + scales + pack(zeros)


print("// Made by make_block_golden.py; do not edit.\n#pragma once\n\n// clang-format off")
for name, encode in (("kQ8_0", q8_0), ("kQ4_0", q4_0), ("kQ4_1", q4_1)):
    w = weights(11, 256)
    emit(f"{name}Blocks", b"".join(encode(w[i:i + 32]) for i in range(0, 256, 32)))
for name, size, decode, scale_at in (("kQ4_K", 144, decode_q4_k, (0, 2)), ("kQ6_K", 210, decode_q6_k, (208,))):
    block = (lcg(23, size) & 255).astype(np.uint8)
    for at in scale_at:
        block[at:at + 2] = np.frombuffer(half(0.0173 + at / 1000), np.uint8)
    emit(f"{name}Block", block)
    emit(f"{name}Weights", decode(block).astype(f32))
for group in (32, 128):
    w = weights(37, 300)
    w[64:96] = 0
    w[96:128] = np.abs(w[96:128])
    emit(f"kInt4G{group}Row", int4_row(w, np.ones(300), group))
    emit(f"kInt4G{group}ImportantRow", int4_row(w, (lcg(41, 300) / 1024).astype(f32), group))
every = np.arange(65536, dtype=np.uint32).astype(np.uint16).view(f16).astype(f32)
finite = every[np.isfinite(every)]
print(f"inline constexpr double kHalfSumOfMagnitudes = {np.abs(finite.astype(np.float64)).sum()!r};")
print("// clang-format on")
