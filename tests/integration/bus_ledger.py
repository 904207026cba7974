#!/usr/bin/env python3
"""The ledger on the bus: who held which sensor, what was asked of models, erased by its owner, refused without the right."""
import json
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import time

from bus_place import Place, check, client_path, opened, stop, wait_until

model_tool = sys.argv[7]


def ledger(place, *options, bus=None):
    done = place.control("ledger", "--json", *options, bus=bus)
    check(done.returncode == 0, "the ledger answers " + done.stderr)
    return json.loads(done.stdout)


def make_package(folder):
    package = folder / "small"
    package.mkdir(parents=True)
    subprocess.run([model_tool, "make", "--shape", "custom", "--width", "64", "--layers", "1", "--heads", "2", "--kv-heads",
                    "1", "--head-dim", "32", "--feed-forward", "64", "--vocabulary", "512", "--context", "256", "--type",
                    "q8_0", "-o", str(package / "small.gguf")], check=True, capture_output=True)
    subprocess.run([model_tool, "pack", str(package), "--name", "small", "--version", "1.0.0", "--licence", "CC0-1.0"],
                   check=True, capture_output=True)


def check_rows():
    with Place() as place, tempfile.TemporaryDirectory() as folder:
        make_package(pathlib.Path(folder))
        (place.folder / "etc/perceptd/conf.d").mkdir()
        (place.folder / "etc/perceptd/conf.d/models.json").write_text(json.dumps({"models": {"folders": [folder]}}))
        place.daemon()
        empty = ledger(place)
        assert empty == {"sessions": 0, "answers": 0, "tokens": 0, "active_days": 0, "models": [], "sensor_uses": [],
                         "milestones": []}, empty
        before_ms = time.time() * 1000
        client = place.session()
        opened(client)
        check(wait_until(lambda: len(ledger(place)["sensor_uses"]) == 2), "both sensors are in the book")
        held = ledger(place)
        uses = {use["sensor"]: use for use in held["sensor_uses"]}
        check(set(uses) == {"camera", "imu"} and all(use["to_ms"] is None and not use["is_over"] and use["pid"] == client.pid
              and before_ms - 1 <= use["from_ms"] <= time.time() * 1000 + 1 for use in uses.values()), f"held now: {uses}")
        check("in use" in place.control("ledger").stdout, "people see that it is in use")
        stop(client)
        check(wait_until(lambda: all(use["is_over"] for use in ledger(place)["sensor_uses"])), "what was left is over")
        check(all(use["from_ms"] <= use["to_ms"] <= time.time() * 1000 + 1 for use in ledger(place)["sensor_uses"]), "until when")
        channel = str(place.folder / "channel.sock")
        answers = []
        for number in range(12):
            done = subprocess.run([client_path, "ask", "small", f"question {number}", "--tokens", "100", "--temperature", "1",
                                   "--seed", str(number), "--json", "--socket", channel], capture_output=True, text=True,
                                  timeout=60)
            answers.append(json.loads(done.stdout.splitlines()[-1]))
        tokens = sum(answer["next_number"] for answer in answers)
        check(wait_until(lambda: ledger(place)["answers"] == 12), "every answer counts")
        kept = ledger(place)
        check(kept["tokens"] == tokens and kept["models"] == [{"model": "small", "answers": 12, "tokens": tokens}]
              and kept["sessions"] == 13 and kept["active_days"] in (1, 2), f"{tokens} tokens in all: {kept}")
        check({"kind": "sessions", "value": 10} in [{"kind": m["kind"], "value": m["value"]} for m in kept["milestones"]],
              "ten sessions are a milestone")
        told = [place.call("/org/perceptd1/ledger", "org.perceptd1.Ledger.TakeMilestone").stdout for _ in range(3)]
        check("value" in told[0] and "value" not in told[1] + told[2], f"one milestone, then a pause: {told}")
        forgotten = str(answers[0]["generation_id"])
        for word, arguments in (("", [forgotten]), ("NotFound", [forgotten]), ("NotFound", ["5"])):
            done = place.call("/org/perceptd1/ledger", "org.perceptd1.Ledger.Forget", f"uint64:{arguments[0]}")
            check(word in done.stderr and (done.returncode == 0) == (word == ""), f"Forget {arguments}: {word or 'done'}")
        done = subprocess.run([client_path, "ask", "--resume", forgotten, "--socket", channel], capture_output=True, text=True)
        check(done.returncode == 1 and "no answer" in done.stderr, "what is forgotten cannot be read again")
        check(ledger(place, "--all")["tokens"] == tokens, "the daemon's own user manages it")
        done = place.control("ledger", "erase", "--json")
        check(json.loads(done.stdout) == {"erased_answers": 11}, f"erased {done.stdout}{done.stderr}")
        check(ledger(place) == empty, "and nothing is left")
        done = subprocess.run([client_path, "ask", "--resume", str(answers[1]["generation_id"]), "--socket", channel],
                              capture_output=True, text=True)
        check(done.returncode == 1, "the answers neither")
        check(place.control("ledger", "shred").returncode == 2, "another word is wrong usage")
        for process in place.processes[1:]:
            stop(process)
        rows = sqlite3.connect(place.folder / "var/lib/perceptd/store/perceptd.db").execute
        check([rows(f"SELECT count(*) FROM {table}").fetchone()[0] for table in
               ("turns", "chunks", "models", "milestones", "sensor_uses")] == [0] * 5, "not in the file either")


def check_rights():
    with Place() as place:
        place.daemon(bus="system")  # and no polkit on it
        check(ledger(place)["sessions"] == 0, "a caller's own rows need no grant")
        for words in (["--all"], ["erase", "--all"]):
            done = place.control("ledger", *words)
            check(done.returncode == 1 and "polkit does not answer" in done.stderr, f"everybody's rows do: {words}")


check_rows()
check_rights()
