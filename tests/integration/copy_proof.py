#!/usr/bin/env python3
"""Camera frames reach a client without one copied byte: daemon and client run under copy_audit.

Counted: bytes that memcpy, memmove, read, write, send, recv and their kin move out of or into the camera arena, in
both processes. The synthetic camera draws by plain stores, so nothing may be counted for its thread either. The patch
gate keeps the luma of the patches that it lists as its reference for later frames: the daemon says how many bytes, and
the audit must have seen exactly these.
"""
import atexit
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

from daemon_process import DaemonProcess, check

daemon_path, reader_path, audit_path, control_path, source_root = sys.argv[1:6]
MAPPING = "/memfd:perceptd:camera (deleted)"
FILLER = "percept-synth"
NAMES = ["magic", "mapped", "copied_out", "copied_in", "filled", "sent", "received", "reserved"]
MAGIC = 0x54494455415950
WINDOWS = 60
NOTHING = {"copied_out": 0, "copied_in": 0, "filled": 0, "sent": 0, "received": 0}


def audited(path):
    return {"LD_PRELOAD": audit_path, "COPY_AUDIT_FILE": str(path), "COPY_AUDIT_MAPPING": MAPPING,
            "COPY_AUDIT_FILLER": FILLER}


def counters(path):
    values = dict(zip(NAMES, struct.unpack("8Q", pathlib.Path(path).read_bytes())))
    assert values["magic"] == MAGIC, "the audit was not loaded"
    return values


def moved(values):
    return {name: values[name] for name in NOTHING}


def references(daemon):
    return [int(number) for number in re.findall(r"patch reference bytes: (\d+)", daemon.log())]


def read_frames(daemon, path, *options):
    result = subprocess.run([reader_path, daemon.channel, str(WINDOWS), *options], capture_output=True, text=True,
                            timeout=60, env={**os.environ, **audited(path)})
    assert result.returncode == 0, result.stderr
    windows, frames, frame_bytes, inode = map(int, result.stdout.split())
    return frames, frame_bytes, inode


def main():
    folder = pathlib.Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

    output = subprocess.run([control_path], capture_output=True, text=True, check=True, timeout=20,
                            env={**os.environ, **audited(folder / "control")}).stdout
    out, into, sent, received = map(int, output.split())
    seen = counters(folder / "control")
    check(moved(seen) == {"copied_out": out, "copied_in": into, "filled": 0, "sent": sent, "received": received},
          f"the audit counts known copies exactly: {seen}")

    settings = {"arena": {"heaps": ["memfd"]}}
    with DaemonProcess(daemon_path, source_root, settings, audited(folder / "daemon")) as daemon:
        frames, frame_bytes, inode = read_frames(daemon, folder / "client")
        check(frames > WINDOWS * 0.8, f"{frames} frames of {frame_bytes} bytes were read whole by the client")
        in_client = counters(folder / "client")
        mapped = counters(folder / "daemon")["mapped"]
        check(in_client["mapped"] >= frame_bytes and mapped == in_client["mapped"],
              "the camera arena is mapped in both processes")
        check(not any(moved(in_client).values()), f"the client copied nothing: {in_client}")
        check(daemon.settled(lambda: len(references(daemon)), 1) == 1, "the sensors are off again")
        in_daemon = counters(folder / "daemon")
        kept = references(daemon)[0]
        check(moved(in_daemon) == {**NOTHING, "copied_out": kept},
              f"the daemon copied nothing but the gate's {kept} reference bytes: {in_daemon}")
        check(daemon.inodes(MAPPING) == {inode}, f"both processes hold the same memory, inode {inode}")

        frames, frame_bytes, _ = read_frames(daemon, folder / "copying", "--copy")
        seen = counters(folder / "copying")
        check(seen["copied_out"] == frames * frame_bytes, f"a client that copies is seen: {seen['copied_out']} bytes")
        check(daemon.stop() == 0, "the daemon stops cleanly")


main()
