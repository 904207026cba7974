"""A folder with a bus of its own, the real daemon and its clients on it: what the tests of the bus share."""
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

daemon_path, client_path, source_root, polkit_path, session_path, garbage_path = sys.argv[1:7]
BUS_CONFIGURATION = """<busconfig><type>session</type><listen>{}</listen><auth>EXTERNAL</auth><policy context="default">
<allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>"""


def check(condition, text):
    if not condition:
        raise AssertionError(text)
    print("ok:", text, flush=True)


def wait_until(condition, seconds=10):
    """Whether `condition` came true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def stop(process):
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
    process.wait()


def accepts(path):
    """Whether somebody listens on the socket at `path`: that it exists is not enough."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0


class Place:
    """A folder, a bus in it, and the processes started there; all of it goes at the end."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.address = f"unix:path={self.folder}/bus"
        self.processes = []
        (self.folder / "etc/perceptd").mkdir(parents=True)
        shutil.copy(pathlib.Path(source_root) / "config/examples/synthetic.json",
                    self.folder / "etc/perceptd/perceptd.json")
        (self.folder / "bus.conf").write_text(BUS_CONFIGURATION.format(self.address))

    def __enter__(self):
        self.bus = self.start(["dbus-daemon", f"--config-file={self.folder}/bus.conf", "--nofork", "--nopidfile"])
        check(wait_until(lambda: accepts(self.folder / "bus")), "a private bus runs")
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            stop(process)
        shutil.rmtree(self.folder)

    def start(self, arguments, **options):
        process = subprocess.Popen(arguments, text=True, **options)
        self.processes.append(process)
        return process

    def daemon(self, bus=None, channel="channel.sock", environment=None):
        """The daemon, serving. As on the system bus when `bus` is "system": polkit decides."""
        self.log = self.folder / f"log.{len(self.processes)}"
        log_file = open(self.log, "w")
        process = self.start([daemon_path, f"--bus={bus or self.address}", "--root", str(self.folder), "--channel",
                              str(self.folder / channel)], stderr=log_file,
                             env={**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": self.address, **(environment or {})})
        log_file.close()
        wait_until(lambda: "serving on" in self.log.read_text() or process.poll() is not None)
        check(process.poll() is None, "the daemon serves " + (self.log.read_text() if process.poll() else ""))
        return process

    def polkit(self):
        return Talker(self.start([polkit_path, self.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    def session(self, sensors="camera,imu", windows=3):
        """A client over the bus."""
        return self.start([session_path, self.address, sensors, str(windows)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE)

    def control(self, *arguments, bus=None):
        return subprocess.run([client_path, *arguments, "--bus", bus or self.address], capture_output=True, text=True,
                              timeout=30)

    def listing(self, name):
        result = self.control(name, "--json")
        check(result.returncode == 0, f"perceptctl {name} " + result.stderr)
        return json.loads(result.stdout)

    def call(self, path, member, *arguments):
        return subprocess.run(["dbus-send", f"--bus={self.address}", "--print-reply=literal", "--dest=org.perceptd1",
                               "--type=method_call", path, member, *arguments], capture_output=True, text=True,
                              timeout=30)


class Talker:
    """A program that answers each line with lines up to "ok"."""

    def __init__(self, process):
        self.process = process
        self.answer()

    def answer(self):
        lines = []
        while (line := self.process.stdout.readline().strip()) != "ok":
            if not line and self.process.poll() is not None:
                raise AssertionError("the fake polkit has ended")
            lines.append(line)
        return lines

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()


def line_of(process):
    return process.stdout.readline().strip()


def opened(process, windows=3):
    """The path of the session that a client has opened and read from."""
    line = line_of(process)
    check(line.startswith("opened "), "a session opens: " + line)
    line_2 = line_of(process)
    check(line_2 == f"windows {windows}", "windows arrive over the channel: " + line_2)
    return line.split()[1]


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descriptor_count(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))
