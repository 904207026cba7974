#!/usr/bin/env python3
"""The real daemon with synthetic sensors and real clients: windows arrive whole, killed clients leave nothing behind."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

daemon_path, client_path, source_root = sys.argv[1:4]
KILLS = 40


def descriptor_count(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def watch(channel, *options, **process):
    return subprocess.Popen([client_path, "watch", "--socket", channel, *options], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **process)


def settled(pid, expected, seconds=10):
    """The descriptor count once it has come down to `expected`, or the last one seen."""
    end = time.monotonic() + seconds
    count = descriptor_count(pid)
    while count > expected and time.monotonic() < end:
        time.sleep(0.05)
        count = descriptor_count(pid)
    return count


def check(condition, text):
    if not condition:
        raise AssertionError(text)
    print("ok:", text)


def main():
    root = pathlib.Path(tempfile.mkdtemp())
    (root / "etc/perceptd").mkdir(parents=True)
    shutil.copy(pathlib.Path(source_root) / "config/examples/synthetic.json", root / "etc/perceptd/perceptd.json")
    channel = str(root / "channel.sock")
    arguments = [daemon_path, "--bus=none", "--root", str(root), "--channel", channel]
    daemon = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 20
        while not os.path.exists(channel) and time.monotonic() < end and daemon.poll() is None:
            time.sleep(0.05)
        idle = descriptor_count(daemon.pid)

        output, errors = watch(channel, "--count", "45", "--json").communicate(timeout=60)
        lines = [json.loads(line) for line in output.splitlines()]
        summary, windows = lines[-1], lines[:-1]
        check(len(windows) == 45 and summary["windows"] == 45, "45 windows arrived " + errors)
        check(summary["windows_with_video"] >= 40, "nearly every window has its frame")
        check(summary["mel_slices_lost"] == 0, "no mel slice was lost")
        check(3.0 < summary["mel_slices"] / 45 < 3.7, "ten milliseconds of sound per slice")
        check(summary["imu_samples"] > 6 * 45, "200 motion rows a second")
        check(9.0 < summary["mean_accel_mps2"] < 10.6, "gravity is felt")

        second = subprocess.run(arguments, capture_output=True, text=True, timeout=20)
        check(second.returncode != 0 and "another perceptd serves" in second.stderr, "a second daemon says why it cannot start")

        hostile = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        hostile.connect(channel)
        hostile.send(os.urandom(3000))
        hostile.close()

        for attempt in range(KILLS):
            client = watch(channel)
            time.sleep(0.01 * (attempt % 8))
            client.send_signal(signal.SIGKILL)
            client.communicate()
        check(settled(daemon.pid, idle) <= idle, f"{KILLS} killed clients leave no descriptor")

        output, _ = watch(channel, "--count", "10", "--json").communicate(timeout=60)
        check(len(output.splitlines()) == 11, "the next client is served")

        daemon.send_signal(signal.SIGTERM)
        _, errors = daemon.communicate(timeout=20)
        check(daemon.returncode == 0, "the daemon stops cleanly: " + errors[-400:])
        check("allocations on hot threads: 0" in errors, "hot threads allocated nothing")
        check(not os.path.exists(channel), "the socket is gone")
    finally:
        if daemon.poll() is None:
            daemon.kill()
            print(daemon.communicate()[1][-2000:])
        shutil.rmtree(root)


main()
