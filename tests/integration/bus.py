#!/usr/bin/env python3
"""The real daemon on buses of its own: the contract, the rights, and what happens when either end misbehaves."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import xml.etree.ElementTree as xml

from bus_place import (Place, check, client_path, daemon_path, descriptor_count, garbage_path, line_of, opened,
                       processor_seconds, source_root, stop, wait_until)

CONTRACT = pathlib.Path(source_root) / "proto"
ROOT = "/org/perceptd1"


def members(interface):
    """What an interface promises: name -> everything that a caller can see of it."""
    found = {}
    for member in interface:
        if member.tag == "annotation":
            continue
        changed = [a.get("value") for a in member.iter("annotation")
                   if a.get("name") == "org.freedesktop.DBus.Property.EmitsChangedSignal"]
        others = [a.get("name") for a in member.iter("annotation")
                  if a.get("name") != "org.freedesktop.DBus.Property.EmitsChangedSignal"]
        arguments = [(a.get("name"), a.get("type"), a.get("direction") if member.tag == "method" else None)
                     for a in member.iter("arg")]
        found[member.get("name")] = (member.tag, member.get("type"), member.get("access"),
                                     changed or ["true"] if member.tag == "property" else [], others, arguments)
    return found


def compare_contract(place, path, name):
    written = xml.parse(CONTRACT / f"{name}.xml").getroot().find(f"interface[@name='{name}']")
    text = place.call(path, "org.freedesktop.DBus.Introspectable.Introspect").stdout
    live = xml.fromstring(text[text.index("<node"):]).find(f"interface[@name='{name}']")
    check(members(written) == members(live), f"{path} is what {name}.xml says\n{members(written)}\n{members(live)}"
          if members(written) != members(live) else f"{path} is what {name}.xml says")


def check_contract_and_sessions():
    with Place() as place:
        daemon = place.daemon()
        monitor_file = open(place.folder / "monitor", "w")
        place.start(["dbus-monitor", "--address", place.address, "type='signal',sender='org.perceptd1'"],
                    stdout=monitor_file)
        check(wait_until(lambda: (place.folder / "monitor").stat().st_size > 0), "the signals are watched")
        client = place.session()
        path = opened(client)
        compare_contract(place, ROOT, "org.perceptd1.Manager")
        for sensor in ("camera", "microphone", "imu"):
            compare_contract(place, f"{ROOT}/sensor/{sensor}", "org.perceptd1.Sensor")
        compare_contract(place, path, "org.perceptd1.Session")
        compare_contract(place, f"{ROOT}/ledger", "org.perceptd1.Ledger")

        sensors = {sensor["name"]: sensor for sensor in place.listing("sensors")}
        check(sensors["camera"]["health"] == "streaming" and sensors["microphone"]["health"] == "off",
              "health is what the streams do")
        check(sensors["camera"]["counters"]["delivered"] > 0 and sensors["camera"]["session_count"] == 1 and
              sensors["camera"]["age_ms"] is not None, "the camera's counters are real")
        session = place.listing("sessions")[0]
        check(session["owner_uid"] == os.getuid() and session["owner_pid"] == client.pid and
              session["label"] == "bus_session" and session["state"] == "streaming" and
              session["sensors"] == ["camera", "imu"] and session["counters"]["sent"] >= 3,
              "the session is listed with what the bus says of its owner")
        check(place.listing("status")["session_count"] == 1, "the status counts it")
        check(place.listing("config")["sensors"]["camera"]["source"] == "synthetic", "the configuration is shown")
        for name in ("status", "sensors", "sessions", "config"):
            text = place.control(name).stdout
            check(len(text.splitlines()) > 1 and "null" not in text, f"perceptctl {name} is a table")

        # Changes are announced a few times a second: a session that ends before may be none.
        signals = place.folder / "monitor"
        check(wait_until(lambda: '"streaming"' in signals.read_text()), "the health is announced")
        client.stdin.write("c")
        client.stdin.flush()
        lines = {line_of(client), line_of(client)}
        check("close answered" in lines and any(line.startswith("ended") for line in lines), f"Close ends it: {lines}")
        check(place.call(path, "org.perceptd1.Session.Close").returncode != 0, "its object is gone")
        # Not before: the bus library opens two descriptors of its own with the first variant, for good.
        idle = descriptor_count(daemon)
        killed = place.session()
        opened(killed)
        killed.kill()
        check(wait_until(lambda: not place.listing("sessions")), "a session dies with its owner")
        check(wait_until(lambda: descriptor_count(daemon) <= idle), "and leaves no descriptor")
        for member in ("InterfacesAdded", "InterfacesRemoved", "PropertiesChanged", "Closed"):
            check(wait_until(lambda: f"member={member}" in signals.read_text()), f"{member} was sent")
        check(wait_until(lambda: '"requested"' in signals.read_text()), "with the reason")
        check(signals.read_text().count("member=InterfacesAdded") == 2, "and each session is announced once")
        monitor_file.close()
        used = processor_seconds(daemon)
        time.sleep(1)
        check(processor_seconds(daemon) - used < 0.2, "an idle daemon is idle")

        second = subprocess.run([daemon_path, f"--bus={place.address}", "--root", str(place.folder), "--channel",
                                 str(place.folder / "second.sock")], capture_output=True, text=True, timeout=30)
        check(second.returncode == 1 and f"process {daemon.pid}" in second.stderr and
              not (place.folder / "second.sock").exists(), "a second daemon names the first one and leaves nothing")
        daemon.send_signal(signal.SIGTERM)
        check(daemon.wait(20) == 0, "the daemon stops cleanly")
        result = place.control("status")
        check(result.returncode == 1 and "systemctl start perceptd" in result.stderr and
              len(result.stderr.splitlines()) == 1, "perceptctl says how to start the daemon")


def check_command_line():
    result = subprocess.run([client_path, "status", "--bus=unix:path=/nonexistent"], capture_output=True, text=True)
    check(result.returncode == 1 and "--bus=ADDRESS" in result.stderr, "perceptctl says that there is no bus")
    result = subprocess.run([client_path, "frobnicate"], capture_output=True, text=True)
    check(result.returncode == 2 and "'frobnicate'" in result.stderr and "--help" in result.stderr and
          len(result.stderr.splitlines()) == 1, "perceptctl refuses an unknown command in one line")
    result = subprocess.run([daemon_path, "--bus=unix:path=/nonexistent", "--channel", "/nonexistent/channel"],
                            capture_output=True, text=True)
    check(result.returncode == 1 and "--bus=none" in result.stderr, "perceptd says what to do without a bus")


def check_refusals():
    """A policy as on the system bus: polkit decides, and there may be none."""
    with Place() as place:
        place.daemon(bus="system")
        unavailable = place.session()
        check("AuthorityUnavailable" in line_of(unavailable), "without polkit nobody gets a sensor")
        result = subprocess.run([client_path, "watch", "--socket", str(place.folder / "channel.sock"), "--count", "1"],
                                capture_output=True, text=True, timeout=30)
        check(result.returncode == 1 and "polkit" in result.stderr, "nor over the channel socket: " + result.stderr)
        plain = place.session("-", 0)
        check(line_of(plain).startswith("opened"), "a session without sensors needs no right")

        polkit = place.polkit()
        for mode, word in (("deny", "NotAuthorized"), ("garbage", "AuthorityUnavailable"),
                           ("empty", "AuthorityUnavailable"), ("fail", "AuthorityUnavailable"),
                           ("refuse", "NotAuthorized")):
            polkit.say(mode)
            line = line_of(place.session())
            check(word in line, f"a polkit that answers with {mode}: {line}")
        polkit.say("challenge")
        asked_by_dialogue = place.session()
        opened(asked_by_dialogue)
        asked_by_dialogue.stdin.close()
        polkit.say("hang")
        line = line_of(place.session())
        check("AuthorityUnavailable" in line, "a polkit that hangs: " + line)
        crowd = [place.session() for _ in range(3)]
        check(place.listing("status")["version"] is not None, "the daemon serves on while polkit hangs")
        for client in crowd:
            check("AuthorityUnavailable" in line_of(client), "and everybody gets an answer")


def check_revocation():
    with Place() as place:
        daemon = place.daemon(bus="system")
        polkit = place.polkit()
        both, motion = place.session("camera,imu"), place.session("imu")
        path = opened(both)
        opened(motion)
        watch = place.start([client_path, "watch", "--socket", str(place.folder / "channel.sock"), "--json"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        check(json.loads(watch.stdout.readline())["window"] >= 0, "a client of the channel socket is granted")
        started = pathlib.Path(f"/proc/{watch.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
        questions = [line.split() for line in polkit.say("questions")]
        check(["unix-process", "org.perceptd1.use-camera", "0", "-", str(watch.pid), started, str(os.getuid())]
              in questions, "polkit was asked about exactly that process")
        check(any(q[0] == "system-bus-name" and q[3].startswith(":") for q in questions), "and about bus names")

        polkit.say("change")
        time.sleep(0.5)
        check(len(place.listing("sessions")) == 3, "a change that takes nothing ends nothing")
        polkit.say("deny org.perceptd1.use-camera")
        polkit.say("change")
        line = line_of(both)
        check(line == "ended, last notice 3", "whoever holds the camera is told and ended: " + line)
        check(wait_until(lambda: watch.poll() is not None or not watch.stdout.readline()), "over the socket, too")
        check([s["sensors"] for s in place.listing("sessions")] == [["imu"]], "whoever does not, goes on")
        health = {s["name"]: s["health"] for s in place.listing("sensors")}
        check(wait_until(lambda: {s["name"]: s["health"] for s in place.listing("sensors")}["camera"] == "off"),
              f"the camera is off {health}")

        polkit.say("deny org.perceptd1.manage")
        other = place.listing("sessions")[0]
        result = place.call(f"{ROOT}/session/{other['id']}", "org.perceptd1.Session.Close")
        check(result.returncode != 0 and "NotAuthorized" in result.stderr, "Close is for the owner: " + result.stderr)
        polkit.say("deny -")
        result = place.call(f"{ROOT}/session/{other['id']}", "org.perceptd1.Session.Close")
        check(result.returncode == 0 and line_of(motion).startswith("ended"), "and for who may manage")

        last = place.session("imu")
        opened(last)
        polkit.say("hang")
        polkit.say("change")
        line = line_of(last)
        check(line.startswith("ended"), "a grant that polkit does not confirm is gone: " + line)
        check(daemon.poll() is None, f"the daemon goes on {path}")


def check_garbage():
    with Place() as place:
        daemon = place.daemon()
        for seed in range(3):
            result = subprocess.run([garbage_path, place.address, str(seed), "400"], capture_output=True, text=True,
                                    timeout=120)
            check(result.returncode == 0, f"400 calls of garbage are all answered: {result.stdout.strip()}")
            errors, returns = (int(word) for word in result.stdout.split() if word.isdigit())
            check(errors > returns, "mostly with errors")
            check(wait_until(lambda: not place.listing("sessions")), "nothing stays of them")
            count = descriptor_count(daemon)
            held = held if seed else count
            check(count <= held, "and no descriptor is kept")
        for text in ("string:x", "array:string:a,b", "dict:string:string:sensors,camera"):
            result = place.call(ROOT, "org.perceptd1.Manager.OpenSession", text)
            check(result.returncode != 0 and "InvalidArgs" in result.stderr, f"wrong type refused: {text}")
        opened(place.session())
        check(daemon.poll() is None, "the next client is served")


def check_quota_error():
    with Place() as place:
        place.daemon()
        crowd = [place.session("-", 0) for _ in range(16)]
        for client in crowd:
            check(line_of(client).startswith("opened"), "a session opens")
        line = line_of(place.session("-", 0))
        check("Error.QuotaExceeded" in line and "(limit 16, used 16)" in line and "[limit t] [used t]" in line,
              "the quota's error says limit and use, for people and programs: " + line)


def check_lost_bus():
    with Place() as place:
        daemon = place.daemon()
        client = place.session()
        opened(client)
        watch = place.start([client_path, "watch", "--socket", str(place.folder / "channel.sock"), "--json"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        watch.stdout.readline()
        stop(place.bus)
        check(line_of(client).startswith("ended"), "a session that came over the bus ends with it")
        for _ in range(60):
            check_line = json.loads(watch.stdout.readline())
        check(check_line["window"] > 0, "the channel socket is served on")
        check("the bus is gone" in place.log.read_text(), "the log says what happened")
        stop(watch)
        output = subprocess.run([client_path, "watch", "--socket", str(place.folder / "channel.sock"), "--count", "3"],
                                capture_output=True, text=True, timeout=30)
        check(output.returncode == 0, "and new clients too")
        time.sleep(0.5)
        used = processor_seconds(daemon)
        time.sleep(1)
        check(processor_seconds(daemon) - used < 0.2, "a daemon without its bus does not spin")
        daemon.send_signal(signal.SIGTERM)
        check(daemon.wait(20) == 0, "and stops cleanly")


def check_watchdog():
    with Place() as place:
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(str(place.folder / "notify"))

        def heard(seconds):
            """Whether a sign of life came within `seconds`."""
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                notify.settimeout(left)
                try:
                    if b"WATCHDOG=1" in notify.recv(4096):
                        return True
                except TimeoutError:
                    break
            return False

        place.daemon(environment={"NOTIFY_SOCKET": str(place.folder / "notify"), "WATCHDOG_USEC": "800000"})
        check(heard(10), "the watchdog is fed")
        client = place.session()
        opened(client)
        check(heard(10), "with sensors, too")
        place.bus.send_signal(signal.SIGSTOP)
        heard(0.3)
        check(not heard(1), "not while the bus hangs")
        place.bus.send_signal(signal.SIGCONT)
        check(heard(10), "again when it is back")
        stop(place.bus)
        heard(0.5)
        check(heard(10), "and when it has gone for good, which a restart would not mend")


if __name__ == "__main__":
    check_command_line()
    check_contract_and_sessions()
    check_refusals()
    check_revocation()
    check_garbage()
    check_quota_error()
    check_lost_bus()
    check_watchdog()
