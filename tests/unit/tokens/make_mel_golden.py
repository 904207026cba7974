#!/usr/bin/env python3
"""Makes mel_golden.hpp: log-mel slices in numpy double precision, written from the definitions only.

Run: /usr/bin/python3 make_mel_golden.py > mel_golden.hpp
The signal is integer arithmetic (an LCG and a triangle chirp), so the C++ test makes the same samples itself.
numpy's FFT, dense filter matrices and whole-clip framing: nothing is shared with the streaming code.
"""
import numpy as np

COUNT = 16000 // 2


def signal():
    """0..0.15 s noise, ..0.3 s chirp, ..0.35 s digital silence, ..0.5 s chirp + quiet noise at full scale."""
    x = np.zeros(COUNT, dtype=np.int64)
    state, phase = 12345, 0
    for i in range(COUNT):
        state = (state * 1664525 + 1013904223) % 2**32
        noise = (state >> 16) - 32768
        phase = (phase + 400 + 3 * i) % 65536
        triangle = abs(phase - 32768) * 2 - 32768  # -32768..32768
        if i < 2400:
            x[i] = noise // 64 + 50
        elif i < 4800:
            x[i] = triangle // 4
        elif i >= 5600:
            x[i] = triangle + noise // 1024
    return np.clip(x, -32768, 32767).astype(np.int16)


def kaldi(x):
    frames = 1 + (len(x) - 400) // 160
    f = np.stack([x[160 * k:160 * k + 400] for k in range(frames)]).astype(np.float64)
    f -= f.mean(axis=1, keepdims=True)
    f = f - 0.97 * np.concatenate([f[:, :1], f[:, :-1]], axis=1)
    f *= (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 399)) ** 0.85
    power = np.abs(np.fft.rfft(f, 512)) ** 2

    def mel(hz):
        return 1127 * np.log(1 + hz / 700)

    edges = np.linspace(mel(20.0), mel(8000.0), 82)
    m = mel(np.arange(256) * 16000 / 512)[None, :]
    lo, mid, hi = (edges[i:i + 80, None] for i in range(3))
    bank = np.where((m > lo) & (m < hi), np.where(m <= mid, (m - lo) / (mid - lo), (hi - m) / (hi - mid)), 0)
    return np.log(np.maximum(power[:, :256] @ bank.T, np.finfo(np.float32).eps))


def whisper_stream(x):
    y = np.concatenate([x[200:0:-1], x]).astype(np.float64) / 32768  # numpy 'reflect' on the left only
    frames = 1 + (len(y) - 400) // 160
    f = np.stack([y[160 * k:160 * k + 400] for k in range(frames)])
    f = f * (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400))
    power = np.abs(np.fft.rfft(f)) ** 2
    top = 15 + 27 * np.log(8.0) / np.log(6.4)
    mels = np.linspace(0, top, 82)
    hz = np.where(mels < 15, mels * 200 / 3, 1000 * 6.4 ** ((mels - 15) / 27))
    freqs = np.arange(201) * 40.0
    bank = np.zeros((80, 201))
    for b in range(80):
        bank[b] = np.interp(freqs, hz[b:b + 3], [0, 1, 0], left=0, right=0) * 2 / (hz[b + 2] - hz[b])
    log = np.log10(np.maximum(power @ bank.T, 1e-10))
    peak = None
    for k in range(frames):
        top = log[k].max()
        peak = top if peak is None else max(top, peak - 8 / 3000)
        log[k] = (np.maximum(log[k], peak - 8) + 4) / 4
    return log


def emit(name, rows):
    print(f"inline constexpr float {name}[][80] = {{")
    for row in rows:
        print("    {" + ", ".join(f"{v:.7g}" if "." in f"{v:.7g}" or "e" in f"{v:.7g}" else f"{v:.1f}" for v in row)
              .replace(",", "F,") + "F},")
    print("};")


KEEP = (0, 1, 2, 7, 13, 14, 16, 22, 27, 28, 31, 33, 34, 35, 38, 44, 46)
x = signal()
k, w = kaldi(x), whisper_stream(x)
print("// Made by make_mel_golden.py; do not edit.")
print("#pragma once")
print()
print(f"inline constexpr int kGoldenSampleCount = {COUNT};")
print(f"inline constexpr long kGoldenSampleSum = {int(x.astype(np.int64).sum())};")
print(f"inline constexpr unsigned kKaldiSliceCount = {len(k)};")
print(f"inline constexpr unsigned kWhisperSliceCount = {len(w)};")
print("inline constexpr unsigned kGoldenSlices[] = {" + ", ".join(map(str, KEEP)) + "};")
emit("kKaldiGolden", k[list(KEEP)])
emit("kWhisperGolden", w[list(KEEP)])
