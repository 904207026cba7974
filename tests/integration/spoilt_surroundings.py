#!/usr/bin/env python3
"""A daemon whose surroundings are wrong says what is wrong and what to do, or does without."""
import atexit
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from daemon_process import DaemonProcess, check

daemon_path, reader_path, source_root = sys.argv[1:4]
EXIT_CONFIG = 78
NOBODY = 65534


def fails(root, *options, **process):
    """Runs a daemon that must not start; gives back its exit code and what it said."""
    result = subprocess.run([daemon_path, "--root", str(root), "--channel", str(root / "channel.sock"), "--bus=none", *options],
                            capture_output=True, text=True, timeout=30, **process)
    return result.returncode, result.stderr


def new_root(settings=None):
    root = pathlib.Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    root.chmod(0o755)
    (root / "etc/perceptd/conf.d").mkdir(parents=True)
    if settings is not None:
        (root / "etc/perceptd/perceptd.json").write_text(json.dumps(settings))
    return root


def unreadable_configuration():
    root = new_root()
    (root / "etc/perceptd/perceptd.json").mkdir()
    code, said = fails(root)
    check(code == EXIT_CONFIG and "perceptd.json" in said, "a folder in the file's place: " + said.strip())

    root = new_root()
    (root / "etc/perceptd/conf.d/90.json").symlink_to("/nonexistent/90.json")
    code, said = fails(root)
    check(code == EXIT_CONFIG and "90.json" in said, "a dangling link: " + said.strip())

    root = new_root({"cameras": 1})
    code, said = fails(root)
    check(code == EXIT_CONFIG and "perceptd.json:1" in said and "/cameras" in said, "an unknown key: " + said.strip())

    for text in (b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b'{"log":' * 100_000):
        (root / "etc/perceptd/perceptd.json").write_bytes(text)
        code, said = fails(root)
        check(code == EXIT_CONFIG and "perceptd.json" in said, f"{text[:8]!r}...: " + said.strip()[:200])

    root = new_root({})
    path = root / "etc/perceptd/perceptd.json"
    path.chmod(0)
    if os.geteuid() != 0:
        code, said = fails(root)
    elif subprocess.run([daemon_path, "--version"], user=NOBODY, capture_output=True).returncode == 0:
        code, said = fails(root, "--check-config", user=NOBODY)
    else:
        print("skipped: a file that may not be read: another user cannot run the daemon from this folder")
        return
    check(code == EXIT_CONFIG and "perceptd.json" in said, "a file that may not be read: " + said.strip())


def reload_keeps_settings():
    with DaemonProcess(daemon_path, source_root, {}) as daemon:
        daemon.reload_with("{ broken")
        check(daemon.settled(lambda: "the old settings stay" in daemon.log(), True), "a broken reload is refused")
        daemon.reload_with('{"log": {"level": "info"}}')
        check(daemon.settled(lambda: "configuration reloaded" in daemon.log(), True), "a good one is taken")
        check(serves(daemon), "and the daemon serves on")
        check(daemon.stop() == 0, "and stops cleanly")


def serves(daemon):
    return subprocess.run([reader_path, daemon.channel, "3"], capture_output=True, timeout=60).returncode == 0


def read_only_configuration():
    with DaemonProcess(daemon_path, source_root, {}) as daemon:
        folder = daemon.root / "etc/perceptd"
        before = {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}
        for path in (*folder.rglob("*"), folder):
            path.chmod(0o555 if path.is_dir() else 0o444)
        check(serves(daemon), "a daemon with read-only /etc serves")
        daemon.stop()
        daemon.start()
        check(serves(daemon), "and starts")
        daemon.stop()
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        after = {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}
        check(before == after, "and writes nothing there")


def missing_heaps():
    heaps = ["dma_heap:nonesuch", "udmabuf", "memfd"]
    with DaemonProcess(daemon_path, source_root, {"arena": {"heaps": heaps}}) as daemon:
        log = daemon.log()
        check("heap passed over: dma_heap:nonesuch" in log, "a missing heap is passed over with its reason")
        check("buffers come from" in log, "and the one in use is named")
        check(serves(daemon), "and the daemon serves")
        daemon.stop()
    root = new_root(None)
    shutil.copy(pathlib.Path(source_root) / "config/examples/synthetic.json", root / "etc/perceptd/perceptd.json")
    (root / "etc/perceptd/conf.d/heap.json").write_text(json.dumps({"arena": {"heaps": ["dma_heap:nonesuch"]}}))
    code, said = fails(root)
    check(code not in (0, -6, -11) and "dma_heap:nonesuch" in said and "memfd" in said, "a forced one: " + said.strip())


def wrong_socket_path():
    root = new_root({})
    code, said = fails(root, "--channel", str(root / "missing/channel.sock"))
    check(code == 1 and "missing/channel.sock" in said, "no folder for the socket: " + said.strip())
    code, said = fails(root, "--channel", "/" + "x" * 200)
    check(code == 1 and "--channel" in said, "a path too long: " + said.strip())
    (root / "file").write_text("kept")
    code, said = fails(root, "--channel", str(root / "file"))
    check("--channel" in said, "and the next step is said: " + said.strip())
    check(code == 1 and (root / "file").read_text() == "kept", "another file in the way is kept: " + said.strip())


def killed_daemon():
    with DaemonProcess(daemon_path, source_root, {}) as daemon:
        holder = subprocess.Popen([reader_path, daemon.channel, "1000000"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)
        check(serves(daemon), "a daemon serves")
        daemon.process.kill()
        daemon.process.wait()
        said = holder.communicate(timeout=20)[1]
        check(holder.returncode == 1 and "perceptd closed the session" in said, "killed, its client ends: " + said.strip())
        check(os.path.exists(daemon.channel), "the dead daemon's socket lies there")
        shared = [name for name in os.listdir("/dev/shm") if "percept" in name] if os.path.isdir("/dev/shm") else []
        check(shared == [], "and nothing in /dev/shm")
        daemon.log_path.unlink()
        daemon.start()
        check(daemon.settled(lambda: "serving on" in daemon.log(), True), "the next daemon takes the path over")
        check(serves(daemon), "and serves")
        check(daemon.stop() == 0, "and stops cleanly")


def missing_root():
    code, said = fails(pathlib.Path("/nonexistent/root"), "--check-config")
    check(code == EXIT_CONFIG and "/nonexistent/root" in said, "a root that is no folder: " + said.strip())


def full_disk():
    with open("/dev/full", "w") as full:
        result = subprocess.run([daemon_path, "--print-config"], stdout=full, stderr=subprocess.PIPE, text=True)
    check(result.returncode == 1 and "could not be written" in result.stderr, "output that is lost: " + result.stderr.strip())


unreadable_configuration()
missing_root()
full_disk()
killed_daemon()
reload_keeps_settings()
read_only_configuration()
missing_heaps()
wrong_socket_path()
