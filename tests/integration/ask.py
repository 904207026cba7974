#!/usr/bin/env python3
"""Questions and answers through the real daemon: the answer of perceptd-generate is the oracle. Clients that die, a daemon
that dies, clients that never read, two that read one answer, and questions that are wrong."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

from daemon_process import DaemonProcess, check

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
from protobuf_by_hand import fields, message

daemon_path, perceptctl, model_tool, generate, source_root = map(os.path.abspath, sys.argv[1:6])
HELLO = message(f1=message(f1=1, f2=1))
PROMPT = "what stands here stands here again"
BEGUN, REFUSED, TOKEN = 20, 21, 22
INTERRUPTED, CANCELLED = 6, 4


def ask(prompt, tokens, request=1, model=b"small"):
    return message(f20=message(f1=request, f2=model, f4=prompt, f6=tokens))


def resume(generation, number, request=1):
    return message(f22=message(f1=request, f2=generation, f3=number))


def unpacked(encoded):
    numbers, value, shift = [], 0, 0
    for byte in encoded:
        value |= (byte & 127) << shift
        shift = shift + 7 if byte > 127 else 0
        if byte < 128:
            numbers.append(value)
            value = 0
    return numbers


class Client:
    def __init__(self, channel, receive_bytes=None):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(60)
        self.socket.connect(channel)
        self.socket.send(HELLO)
        assert 1 in fields(self.socket.recv(65536))

    def send(self, packet):
        self.socket.send(packet)

    def read(self):
        got = fields(self.socket.recv(65536))
        kind = next(iter(got))
        return kind, fields(got[kind])

    def answer(self, until=None):
        """Tokens, text and finish up to the end, or up to `until` tokens."""
        ids, text = [], b""
        while True:
            kind, part = self.read()
            assert kind == TOKEN, (kind, part)
            ids += unpacked(part.get(3, b""))
            text += part.get(4, b"")
            text.decode()  # whole characters, at any moment
            if 5 in part or (until is not None and len(ids) >= until):
                return ids, text.decode(), part.get(5, 0), part

    def close(self):
        self.socket.close()


def run_ctl(daemon, *arguments):
    return subprocess.run([perceptctl, "ask", *map(str, arguments), "--socket", daemon.channel], capture_output=True,
                          text=True, timeout=120)


def oracle(path, prompt, tokens, *options):
    done = subprocess.run([generate, path, prompt, "--tokens", str(tokens), "--source", "none", "--json", *options],
                          capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


def make_package(folder, name, encoding="q8_0"):
    package = folder / name
    package.mkdir(parents=True)
    path = str(package / (name + ".gguf"))
    subprocess.run([model_tool, "make", "--shape", "custom", "--width", "64", "--layers", "2", "--heads", "2",
                    "--kv-heads", "1", "--head-dim", "32", "--feed-forward", "128", "--vocabulary", "512", "--context",
                    "512", "--type", encoding, "-o", path], check=True, capture_output=True)
    subprocess.run([model_tool, "pack", str(package), "--name", name, "--version", "1.0.0", "--licence", "CC0-1.0"],
                   check=True, capture_output=True)
    return path


def questions_and_answers(daemon, path):
    for options in ([], ["--temperature", "0.8", "--seed", "7"], ["--temperature", "1.2", "--seed", "9", "--top-k", "40"],
                    ["--stop", "e", "--temperature", "0.9", "--seed", "3"]):
        wanted = oracle(path, PROMPT, 120, *options)
        done = run_ctl(daemon, "small", PROMPT, "--tokens", 120, *options, "--json")
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        whole = lines.pop()
        assert whole["text"] == wanted["text"] and whole["finish"] == wanted["finish"], (whole, wanted)
        assert sum(len(line["tokens"]) for line in lines) == wanted["tokens"] == whole["next_number"]
        assert "".join(line["text"] for line in lines) == whole["text"]
        assert whole["context_used_tokens"] == wanted["context_used_tokens"]
        assert run_ctl(daemon, "--resume", whole["generation_id"]).stdout == wanted["text"] + "\n"
        half = whole["next_number"] // 2
        rest = json.loads(run_ctl(daemon, "--resume", whole["generation_id"], "--from", half,
                                  "--json").stdout.splitlines()[-1])
        assert whole["text"].endswith(rest["text"]) and rest["first_number"] == half
        seen = sum(len(line["tokens"]) for line in lines if line["first_number"] < half)
        assert seen >= half
    check(True, "answers are those of perceptd-generate, and are told again from any token on")


def wrong_questions(daemon):
    client = Client(daemon.channel)
    cases = [(ask(b"", 10), "empty"), (ask(b"\xff\xfe", 10), "no UTF-8"), (ask(b"hi", 10, model=b"none"), "no model none"),
             (ask(b"hi", 10, model=b""), "names no model"), (ask(b"x " * 2000, 10), "do not fit"),
             (ask(b"hi", 4000000000), "do not fit"), (resume(12345, 0), "no answer 12345"),
             (message(f20=message(f1=1, f2=b"small", f4=b"hi", f7=b"\xff")), "no UTF-8"),
             (message(f20=message(f1=1, f2=b"small", f4=b"hi", f8=77)), "no answer 77")]
    for packet, word in cases:
        client.send(packet)
        kind, refused = client.read()
        assert kind == REFUSED and refused[1] == 1 and word in fields(refused[2])[2].decode(), (word, refused)
    client.send(message(f21=message(f1=99)))  # nothing to stop
    client.close()
    check(True, "a wrong question is refused with the reason and costs the session nothing")
    for arguments in (["small"], ["--resume", "5", "small", "hi"], ["--from", "3"], ["small", "hi", "--resume", "x"]):
        assert run_ctl(daemon, *arguments).returncode in (1, 2), arguments
    assert "empty" in run_ctl(daemon, "small", "").stderr


def two_readers(daemon, path):
    wanted = oracle(path, PROMPT, 400)
    first, second = Client(daemon.channel), Client(daemon.channel)
    first.send(ask(PROMPT.encode(), 400))
    kind, begun = first.read()
    assert kind == BEGUN
    ids, text, _, _ = first.answer(until=20)
    second.send(resume(begun[2], 5, request=8))
    kind, again = second.read()
    assert kind == BEGUN and again[1] == 8 and again[2] == begun[2] and again[4] == 5
    rest, rest_text, finish, last = first.answer()
    all_but_5, all_text, finish_2, _ = second.answer()
    assert finish == finish_2 and (ids + rest)[5:] == all_but_5
    assert text + rest_text == wanted["text"] and wanted["text"].endswith(all_text)
    headroom = fields(last[7])
    assert headroom[1] == wanted["context_used_tokens"] and headroom[2] == 512, headroom
    assert headroom[3] == (2 if headroom[1] >= 461 else 1), headroom
    check(True, "two clients read one answer, each from its place, and the last part says how full the context is")
    first.send(ask(b"another", 400))
    kind, begun = first.read()
    second.send(message(f21=message(f1=begun[2])))
    ids, _, finish, _ = first.answer()
    assert finish in (CANCELLED, 3), finish
    first.send(resume(begun[2], 0))
    first.read()
    assert first.answer()[0] == ids
    check(True, "Stop ends an answer, and what was said of it stays")
    first.close()
    second.close()


def silent_reader(daemon, path):
    silent = Client(daemon.channel, receive_bytes=2304)
    silent.send(ask(PROMPT.encode(), 450))
    resident = daemon.resident_kib()
    before = time.monotonic()
    other = json.loads(run_ctl(daemon, "small", PROMPT, "--tokens", 300, "--json").stdout.splitlines()[-1])
    assert other["text"] == oracle(path, PROMPT, 300)["text"]
    time.sleep(max(0, 1 - (time.monotonic() - before)))
    assert daemon.lives() and daemon.resident_kib() < resident + 4096
    kind, _ = silent.read()
    assert kind == BEGUN
    ids, text, finish, _ = silent.answer()
    wanted = oracle(path, PROMPT, 450)
    assert len(ids) == wanted["tokens"] and text == wanted["text"], "late, but whole"
    silent.close()
    check(True, "a client that does not read holds nobody up, costs no memory, and finds everything later")


def deaths(daemon, path):
    options = ["--temperature", "0.8", "--seed", "11"]
    wanted = oracle(path, PROMPT, 450, *options)
    asking = subprocess.Popen([perceptctl, "ask", "small", PROMPT, "--tokens", "450", *options, "--socket", daemon.channel,
                               "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seen, text = 0, ""
    for line in asking.stdout:
        part = json.loads(line)
        assert "finish" not in part, "the answer was too quick to be cut"
        seen, text = part["first_number"] + len(part["tokens"]), text + part["text"]
        if seen >= 30:
            break
    daemon.process.kill()  # in the middle of it
    daemon.process.wait()
    for line in asking.stdout:  # what had reached the client
        part = json.loads(line)
        if "tokens" in part:
            seen, text = part["first_number"] + len(part["tokens"]), text + part["text"]
    told = asking.stderr.read()
    assert asking.wait() == 1 and "--resume" in told and f"--from {seen}" in told, told
    generation = told.split("--resume ")[1].split()[0]
    os.unlink(daemon.channel)
    daemon.start()
    done = run_ctl(daemon, "--resume", generation, "--from", seen, "--json")
    whole = json.loads(done.stdout.splitlines()[-1])
    assert text + whole["text"] == wanted["text"], "the same bytes as in one piece"
    assert whole["next_number"] == wanted["tokens"] and whole["finish"] == wanted["finish"]
    check(True, f"kill -9 of the daemon behind token {seen}: nothing is lost, the rest is the same")
    asking = subprocess.Popen([perceptctl, "ask", "small", PROMPT, "--tokens", "450", *options, "--socket", daemon.channel,
                               "--json"], stdout=subprocess.PIPE, text=True)
    first = json.loads(asking.stdout.readline())
    asking.send_signal(signal.SIGKILL)
    asking.wait()
    assert first["first_number"] == 0
    check(daemon.lives(), "the daemon outlives the client")
    database = daemon.root / "var/lib/perceptd/store"
    assert (database.stat().st_mode & 0o777) == 0o700 and ((database / "perceptd.db").stat().st_mode & 0o777) == 0o600
    assert daemon.stop() == 0
    assert not list(database.glob("*.journal")), "an orderly end leaves no journal"


def no_room(path, models):
    """A store that cannot be opened: questions are refused with the reason, sensors go on."""
    settings = {"models": {"folders": [str(models)]}, "store": {"folder": "/file/store"}}
    process = DaemonProcess(daemon_path, source_root, settings)
    (process.root / "file").write_text("in the way")
    with process as daemon:
        done = run_ctl(daemon, "small", "hi")
        assert done.returncode == 1 and "cannot be kept" in done.stderr, done.stderr
        watched = subprocess.run([perceptctl, "watch", "--count", "3", "--socket", daemon.channel, "--sensors", "imu"],
                                 capture_output=True, text=True, timeout=60)
        assert watched.returncode == 0, watched.stderr
    check(True, "without a store no answer begins, and the sensors go on")


def main():
    with tempfile.TemporaryDirectory() as folder:
        models = pathlib.Path(folder) / "models"
        path = make_package(models, "small")
        with DaemonProcess(daemon_path, source_root, {"models": {"folders": [str(models)]}}) as daemon:
            questions_and_answers(daemon, path)
            wrong_questions(daemon)
            two_readers(daemon, path)
            silent_reader(daemon, path)
            deaths(daemon, path)
        no_room(path, models)


main()
