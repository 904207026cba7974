#!/usr/bin/env python3
"""Clients that break every rule of the channel: each gets a clear error, the daemon goes on, nothing leaks.

After each of them the daemon must be as it was: the same descriptors, no sensor thread, every slot of every arena free,
and the next honest client is served.
"""
import mmap
import os
import pathlib
import random
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time

from daemon_process import DaemonProcess, check

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
from protobuf_by_hand import fields, message, varint

daemon_path, reader_path, source_root = map(os.path.abspath, sys.argv[1:4])
KILLS = int(os.environ.get("PERCEPTD_TEST_KILLS", "500"))
SLOTS_MAX = 256
HEADER = struct.Struct("<IIIIQQQ")

HELLO = message(f1=message(f1=1, f2=1))
SUBSCRIBE = message(f2=message(f1=bytes([1, 2, 3])))
BYE = message(f4=b"")


def release(*ids):
    return message(f3=message(f1=b"".join(varint(number) for number in ids)))


KINDS = {1: "welcome", 2: "streams", 3: "window", 4: "notice", 5: "error"}


class Client:
    """A client by hand. Everything it was given is closed with it."""

    def __init__(self, channel):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(channel)
        self.descriptors = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []

    def send(self, packet):
        try:
            self.socket.send(packet)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused already; what it said can still be read

    def read(self, seconds=5):
        """The next answer as (kind, fields); ("end", {}) when the daemon closed, ("nothing", {}) after a time-out."""
        if not select.select([self.socket], [], [], seconds)[0]:
            return "nothing", {}
        try:
            packet, descriptors, _, _ = socket.recv_fds(self.socket, 65536, 16)
        except ConnectionResetError:
            return "end", {}
        self.descriptors += descriptors
        if not packet:
            return "end", {}
        kind, body = next(iter(fields(packet).items()))
        return KINDS[kind], fields(body)

    def expect_refusal(self, name, code):
        kind, error = self.read()
        while kind in ("welcome", "streams", "window", "notice"):
            kind, error = self.read()
        text = error.get(2, b"").decode()
        check(kind == "error" and error.get(1) == code and error.get(6) == 1 and len(text) > 20, f"{name}: '{text}'")
        check(self.read()[0] == "end", f"{name}: the channel is closed after the error")

    def stream(self, window_count=1):
        self.send(HELLO)
        assert self.read()[0] == "welcome"
        self.send(SUBSCRIBE)
        ids = []
        while len(ids) < window_count:
            kind, body = self.read()
            assert kind in ("streams", "window"), kind
            if kind == "window":
                ids.append(body.get(1, 0))
        return ids


def busy_slots(daemon):
    """Slots that are leased, of all arenas, by the generation tables that the daemon shares (even = leased)."""
    count = 0
    folder = f"/proc/{daemon.pid}/fd"
    for number in os.listdir(folder):
        try:
            name = os.readlink(f"{folder}/{number}")
        except FileNotFoundError:
            continue  # closed since it was listed; no arena's
        if not re.fullmatch(r"/memfd:perceptd:\w+\.header \(deleted\)", name):
            continue
        with open(f"{folder}/{number}", "rb") as file, mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ) as table:
            slot_count = HEADER.unpack_from(table)[2]
            generations = struct.unpack_from(f"<{SLOTS_MAX}Q", table, HEADER.size)
            count += sum(generation % 2 == 0 for generation in generations[:slot_count])
    return count


def state(daemon):
    return daemon.descriptors(), daemon.threads(), busy_slots(daemon)


def serves(daemon, windows=3):
    result = subprocess.run([reader_path, daemon.channel, str(windows)], capture_output=True, text=True, timeout=60)
    return result.returncode == 0, result.stderr


class Idle:
    """How the daemon looks when nobody is there; unchanged() after each attack."""

    def __init__(self, daemon):
        self.daemon = daemon
        check(serves(daemon)[0], "an honest client is served")
        daemon.settled(lambda: len(daemon.threads()), 1)
        self.state = state(daemon)
        check(self.state[2] == 0, "every slot is free when nobody is there")
        check(
            set(self.state[1]) <= {"perceptd", "store", "answering"},
            f"the sensors are off when nobody is there: {self.state[1]}",
        )

    def unchanged(self, name):
        check(self.daemon.lives(), f"{name}: the daemon lives")
        # Asked again: the daemon may still have the ends of the attackers before it, and all sessions taken till then.
        served, errors = self.daemon.settled(lambda: serves(self.daemon), (True, ""))
        check(served, f"{name}: the next client is served {errors}")
        seen = self.daemon.settled(lambda: state(self.daemon), self.state)
        check(seen == self.state, f"{name}: nothing is left behind {seen if seen != self.state else ''}")


PROTOCOL, QUOTA, VERSION = 10, 6, 9


def break_rules(daemon):
    def refused(name, code, *packets):
        with Client(daemon.channel) as client:
            for packet in packets:
                client.send(packet)
            client.expect_refusal(name, code)

    refused("half a Hello", PROTOCOL, HELLO[:3])
    refused("no Hello, Subscribe", PROTOCOL, SUBSCRIBE)
    refused("no Hello, Release", PROTOCOL, release(1))
    refused("Hello twice", PROTOCOL, HELLO, HELLO)
    refused("Subscribe twice", PROTOCOL, HELLO, SUBSCRIBE, SUBSCRIBE)
    refused("a window that was never sent", PROTOCOL, HELLO, SUBSCRIBE, release(1 << 60))
    refused("300 windows in one Release", PROTOCOL, HELLO, SUBSCRIBE, release(*range(300)))
    refused("an unknown message", PROTOCOL, b"\x7a\x02\x08\x01")
    refused("a version of the future", VERSION, b"\x0a\x04\x08\x07\x10\x09")
    refused("versions the wrong way round", VERSION, b"\x0a\x04\x08\x02\x10\x01")
    refused("versions that are missing", VERSION, b"\x0a\x00")

    with Client(daemon.channel) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        client.send(b"\x0a" * 70000)
        client.expect_refusal("an oversized message", PROTOCOL)
    for count in (1, 8, 9, 250):
        with Client(daemon.channel) as client, open("/dev/null", "rb") as null:
            socket.send_fds(client.socket, [HELLO], [null.fileno()] * count)
            client.expect_refusal(f"{count} descriptors", PROTOCOL)


def send_garbage(daemon):
    chance = random.Random(1)
    for _ in range(300):
        with Client(daemon.channel) as client:
            for _ in range(chance.randrange(4)):
                start = chance.choice([b"", HELLO, HELLO[:2], SUBSCRIBE[:4], b"\x1a"])
                client.send(start + chance.randbytes(chance.randrange(1, 3000)))


def never_read(daemon):
    with Client(daemon.channel) as client:
        client.send(HELLO)
        client.send(SUBSCRIBE)
        check(serves(daemon, 60)[0], "others get their windows beside a client that never reads")
        client.socket.setblocking(False)
        try:
            for _ in range(100_000):
                client.socket.send(release(0))
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            pass
        check(serves(daemon, 10)[0], "others get their windows beside a client that only sends")


def never_release(daemon):
    with Client(daemon.channel) as client:
        ids = client.stream(4)
        check(len(set(ids)) == 4, "four windows are held")
        check(client.read(seconds=0.5)[0] == "nothing", "no fifth window comes while four are held")
        check(serves(daemon, 60)[0], "others get their windows beside a client that never releases")
        client.send(release(ids[0], ids[0], *ids))
        kind, window = client.read()
        check(kind == "window" and 11 in window, "after a release windows come again and tell what was lost")


def hoard_connections(daemon):
    clients, refusals = [], 0
    for _ in range(1000):
        client = Client(daemon.channel)
        clients.append(client)
        if len(clients) > 200:
            clients.pop(0).close()
    for client in clients:
        kind, error = client.read(seconds=0.05)
        if kind == "error" and error.get(1) == QUOTA and error.get(3) == 16 and error.get(2):
            refusals += 1
    check(refusals >= 150, f"{refusals} of 200 hoarded connections were refused with a reason")
    for client in clients:
        client.close()


def die_everywhere(daemon):
    for _ in range(15):
        for stage in range(9):
            with Client(daemon.channel) as client:
                if stage == 1:
                    client.send(HELLO[:4])
                if stage >= 2:
                    client.send(HELLO)
                if stage >= 3:
                    client.read()
                if stage >= 4:
                    client.send(SUBSCRIBE)
                if stage >= 5:
                    client.read()
                if stage >= 6:
                    client.read()
                if stage == 7:
                    client.send(release(0))
                if stage == 8:
                    client.send(BYE)


def kill_clients(daemon):
    chance = random.Random(7)
    resident = daemon.resident_kib()
    running = []
    for _ in range(KILLS):
        running.append(subprocess.Popen([reader_path, daemon.channel, "1000000"], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL))
        time.sleep(chance.random() * 0.02)
        if len(running) >= 6:
            victim = running.pop(chance.randrange(len(running)))
            victim.send_signal(signal.SIGKILL)
            victim.wait()
    for victim in running:
        victim.kill()
        victim.wait()
    grown = daemon.resident_kib() - resident
    # AddressSanitizer keeps freed memory back on purpose.
    is_bounded = b"__asan_init" not in pathlib.Path(daemon_path).read_bytes()
    check(grown < 4096 or not is_bounded, f"{KILLS} killed clients: private memory grew by {grown} KiB")


def stay_silent(daemon):
    with Client(daemon.channel) as client:
        kind, error = client.read(seconds=20)
        check(kind == "error" and error[1] == PROTOCOL, "silence: " + error.get(2, b"").decode())
        check(client.read()[0] == "end", "silence: the channel is closed after the error")


def run_out_of_descriptors():
    def low_limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    settings = {"sessions": {"max_count": 64}}
    with DaemonProcess(daemon_path, source_root, settings, before_start=low_limit) as daemon:
        idle = Idle(daemon)
        clients = [Client(daemon.channel) for _ in range(60)]
        for client in clients[::2]:
            client.send(HELLO)
            client.send(SUBSCRIBE)
        end = time.monotonic() + 10
        while "no descriptor or memory is left" not in daemon.log() and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.5)
        complaints = daemon.log().count("no descriptor or memory is left")
        check(1 <= complaints <= 4, f"a daemon without descriptors says so and rests ({complaints} times)")
        for client in clients:
            client.close()
        idle.unchanged("no descriptors left")


def main():
    settings = {"log": {"level": "info"}}
    with DaemonProcess(daemon_path, source_root, settings) as daemon:
        idle = Idle(daemon)
        for attack in (break_rules, stay_silent, send_garbage, never_read, never_release, hoard_connections, die_everywhere,
                       kill_clients):
            attack(daemon)
            idle.unchanged(attack.__name__.replace("_", " "))
        check(daemon.stop() == 0, "the daemon stops cleanly")
        hot = re.search(r"allocations on hot threads: (\d+)", daemon.log())
        check(hot is not None and hot.group(1) == "0", "hot threads allocated nothing")
        check(not pathlib.Path(daemon.channel).exists(), "the socket is gone")
    run_out_of_descriptors()


main()
