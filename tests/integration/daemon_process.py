"""The real daemon in a folder of its own, for integration tests: start, look at it from outside, stop."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time


def check(condition, text):
    if not condition:
        raise AssertionError(text)
    print("ok:", text, flush=True)


class DaemonProcess:
    """perceptd under a temporary root; `settings` are merged over the synthetic example. Use as a context."""

    def __init__(self, executable, source_root, settings=None, environment=None, before_start=None):
        self.root = pathlib.Path(tempfile.mkdtemp())
        folder = self.root / "etc/perceptd"
        (folder / "conf.d").mkdir(parents=True)
        shutil.copy(pathlib.Path(source_root) / "config/examples/synthetic.json", folder / "perceptd.json")
        if settings is not None:
            (folder / "conf.d/test.json").write_text(json.dumps(settings))
        self.channel = str(self.root / "channel.sock")
        self.arguments = [executable, "--root", str(self.root), "--channel", self.channel, "--bus=none"]
        self.before_start = before_start
        self.environment = {**os.environ, **(environment or {})}
        self.log_path = self.root / "log"
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, *_):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if kind is not None:
            print(self.log()[-3000:])
        shutil.rmtree(self.root, ignore_errors=True)

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.arguments, stderr=log, env=self.environment,
                                            preexec_fn=self.before_start)
        end = time.monotonic() + 20
        while not os.path.exists(self.channel) and self.process.poll() is None:
            if time.monotonic() > end:
                raise AssertionError("the daemon made no socket in 20 s")
            time.sleep(0.02)

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        return self.log_path.read_text(errors="replace")

    def lives(self):
        return self.process.poll() is None

    def descriptors(self):
        """What each descriptor of the daemon points to."""
        folder = f"/proc/{self.pid}/fd"
        names = []
        for number in os.listdir(folder):
            try:
                names.append(os.readlink(f"{folder}/{number}"))
            except FileNotFoundError:
                pass
        return sorted(name.split(":[")[0] for name in names)

    def inodes(self, name):
        """The inodes of the daemon's descriptors with this link text."""
        folder = f"/proc/{self.pid}/fd"
        inodes = set()
        for number in os.listdir(folder):
            try:
                if os.readlink(f"{folder}/{number}") == name:
                    inodes.add(os.stat(f"{folder}/{number}").st_ino)
            except FileNotFoundError:
                pass
        return inodes

    def threads(self):
        folder = pathlib.Path(f"/proc/{self.pid}/task")
        names = []
        for task in os.listdir(folder):
            try:
                names.append((folder / task / "comm").read_text().strip())
            except (FileNotFoundError, ProcessLookupError):
                pass
        return sorted(names)

    def resident_kib(self):
        """Private memory: the shared arenas are resident as far as they were used, whoever used them."""
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
        raise AssertionError("no RssAnon")

    def settled(self, look, expected, seconds=15):
        """look() once it equals `expected`, or what it gave last."""
        end = time.monotonic() + seconds
        seen = look()
        while seen != expected and time.monotonic() < end:
            time.sleep(0.05)
            seen = look()
        return seen

    def reload_with(self, text):
        """Writes the drop-in anew and asks for a reload."""
        (self.root / "etc/perceptd/conf.d/test.json").write_text(text)
        self.process.send_signal(signal.SIGHUP)

    def stop(self):
        """Ends it politely; gives back the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=20)
