#!/usr/bin/env python3
"""The sensors of a provider process on the bus: they come and go with it, and with its right to provide."""
import pathlib
import shutil
import subprocess
import sys

from bus_place import Place, check, line_of, opened, source_root, wait_until
from euroc_recording import euroc

replay_path = sys.argv[7]
KINDS = {"camera", "microphone", "imu"}


def present(place):
    return {sensor["name"]: sensor for sensor in place.listing("sensors")}


def provide(place, ready=True):
    process = place.start([replay_path, str(place.folder / "euroc"), "--socket", str(place.folder / "channel.sock"),
                           "--loop"], stderr=subprocess.PIPE)
    if ready:
        line = process.stderr.readline()
        check("ready" in line, "a provider is taken in: " + line.strip())
    return process


def count(place, word):
    return (place.folder / "monitor").read_text().count(word)


def check_coming_and_going(place):
    provider = provide(place)
    check(wait_until(lambda: set(present(place)) == KINDS), "its sensors are there")
    check(all("euroc" in sensor["origin"] and sensor["health"] == "off" for sensor in present(place).values()),
          "with their origin, and off")
    check([session["state"] for session in place.listing("sessions")] == ["providing"], "its session is providing")
    check(wait_until(lambda: count(place, "member=InterfacesAdded") >= 3 and count(place, '"Sensors"') >= 1),
          "and they are announced")
    client = place.session()
    opened(client)
    check(wait_until(lambda: present(place)["camera"]["health"] == "streaming"), "a client switches them on")
    check(present(place)["microphone"]["health"] == "off", "those that it asked for")
    provider.kill()
    check(wait_until(lambda: not present(place)), "a killed provider takes its sensors with it")
    check(wait_until(lambda: count(place, "member=InterfacesRemoved") >= 3), "and that is announced")
    client.stdin.close()
    check(wait_until(lambda: not place.listing("sessions")), "nothing stays")
    check("SensorUnavailable" in line_of(place.session()), "who asks for them now is told")


def check_right(place, polkit):
    polkit.say("deny org.perceptd1.manage")
    refused = provide(place, ready=False)
    said = refused.communicate(timeout=30)[1]
    check(refused.returncode == 1 and "org.perceptd1.manage" in said, "who may not manage may not provide: " + said)
    polkit.say("deny -")
    provider = provide(place)
    check(wait_until(lambda: set(present(place)) == KINDS), "who may, may")
    polkit.say("change")
    polkit.say("deny org.perceptd1.use-camera")
    polkit.say("change")
    client = place.session("imu")
    opened(client)
    check(set(present(place)) == KINDS, "it needs no right to use a camera")
    polkit.say("deny org.perceptd1.manage")
    polkit.say("change")
    check(wait_until(lambda: not present(place)), "and provides no longer when the right is taken back")
    check(wait_until(lambda: len(place.listing("sessions")) == 1), "its session has ended, its client's has not")
    check(provider.wait(30) != 0, "and the provider ends with an error")


def main():
    with Place() as place:
        shutil.copy(pathlib.Path(source_root) / "config/examples/replay.json",
                    place.folder / "etc/perceptd/perceptd.json")
        euroc(place.folder / "euroc", cameras=("cam0",))
        daemon = place.daemon(bus="system")
        with open(place.folder / "monitor", "w") as monitor:
            place.start(["dbus-monitor", "--address", place.address, "type='signal',sender='org.perceptd1'"],
                        stdout=monitor)
        check(wait_until(lambda: (place.folder / "monitor").stat().st_size > 0), "the signals are watched")
        polkit = place.polkit()
        check(not present(place), "no provider, no sensor")
        check_coming_and_going(place)
        check_right(place, polkit)
        daemon.terminate()
        check(daemon.wait(20) == 0, "the daemon stops cleanly")
        check(" E bus" not in place.log.read_text(), "and nothing failed on the bus")


main()
