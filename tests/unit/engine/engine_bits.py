#!/usr/bin/env python3
"""The kernels give the same bits on every instruction set: native sets against AArch64 NEON under qemu-user."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
CROSS = "aarch64-linux-gnu-g++"
FLAGS = ["-std=c++20", "-O2", "-ffp-contract=off", "-D_GNU_SOURCE", "-pthread"]
MARCH = {"kernels_neon": "armv8.2-a+dotprod", "kernels_i8mm": "armv8.2-a+dotprod+i8mm"}
# What the kernels stand on; the executor and what feeds it need libraries that a cross build may lack.
KERNELS = ["engine/attention", "engine/convolution", "engine/kernels", "engine/kernels_i8mm", "engine/kernels_neon", "engine/kernels_portable",
           "engine/kv_pages", "engine/operations", "engine/pack", "engine/rotary", "engine/unpack",
           "engine/worker_team", "model/blocks", "model/fp8", "model/int4", "base/contract", "base/error", "base/hot_path"]


def digest(command, instruction_set):
    environment = dict(os.environ, PERCEPTD_INSTRUCTION_SET=instruction_set)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    if f"instruction set: {instruction_set}" not in done.stderr:
        sys.exit(f"asked for {instruction_set}, got: {done.stderr}")
    return done.stdout


def build_cross(root, folder):
    sources = [root / "daemon" / (name + ".cpp") for name in KERNELS]
    sources.append(root / "tests/unit/engine/kernel_digest.cpp")
    objects = []
    for source in sources:
        target = folder / (source.stem + ".o")
        march = [f"-march={MARCH[source.stem]}"] if source.stem in MARCH else []
        subprocess.run([CROSS, *FLAGS, *march, f"-I{root}/daemon", "-c", source, "-o", target], check=True)
        objects.append(target)
    program = folder / "kernel_digest"
    subprocess.run([CROSS, "-static", "-pthread", *objects, "-o", program], check=True)
    return program


def main():
    native, root = sys.argv[1], pathlib.Path(sys.argv[2])
    expected = digest([native], "portable")
    if len(expected.splitlines()) < 30:
        sys.exit("the digest program printed too little")
    if shutil.which(CROSS) is None or shutil.which("qemu-aarch64") is None:
        print("needs g++-aarch64-linux-gnu and qemu-user", file=sys.stderr)
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        program = build_cross(root, pathlib.Path(folder))
        for instruction_set in ("portable", "neon", "i8mm"):
            got = digest(["qemu-aarch64", "-cpu", "max", program], instruction_set)
            for ours, theirs in zip(expected.splitlines(), got.splitlines()):
                if ours != theirs:
                    sys.exit(f"AArch64 {instruction_set} differs: {ours} here, {theirs} there")
            if got != expected:
                sys.exit(f"AArch64 {instruction_set} printed another number of lines")
            print(f"AArch64 {instruction_set}: {len(expected.splitlines())} digests equal")


main()
