#!/usr/bin/env python3
"""Recordings through the real daemon: every number is known before, bad input is told, a killed provider harms nobody."""
import contextlib
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

from euroc_recording import STEP_HZ, euroc

daemon_path, client_path, replay_path, source_root = sys.argv[1:5]


def check(condition, text):
    if not condition:
        raise AssertionError(text)
    print("ok:", text)


class Daemon:
    """The daemon in a root of its own, with every sensor left to a provider."""

    def __init__(self, settings=None):
        self.root = pathlib.Path(tempfile.mkdtemp())
        (self.root / "etc/perceptd").mkdir(parents=True)
        configuration = self.root / "etc/perceptd/perceptd.json"
        if settings is None:
            shutil.copy(pathlib.Path(source_root) / "config/examples/replay.json", configuration)
        else:
            configuration.write_text(json.dumps(settings))
        self.channel = str(self.root / "channel.sock")
        self.log = open(self.root / "log", "w+")
        self.process = subprocess.Popen([daemon_path, "--bus=none", "--root", str(self.root), "--channel", self.channel],
                                        stderr=self.log)
        # Not when the socket is there: what else the daemon opens at its start is still to come then.
        wait_for(lambda: "serving on" in (self.root / "log").read_text() or self.process.poll() is not None)

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=20)
        self.log.seek(0)
        text = self.log.read()
        if failure:
            print(text[-3000:])
        else:
            check(code == 0 and "allocations on hot threads: 0" in text, "the daemon stops cleanly")
        shutil.rmtree(self.root)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def replay(self, recording, *options, ready=True):
        process = subprocess.Popen([replay_path, str(recording), "--socket", self.channel, *options],
                                   stderr=subprocess.PIPE, text=True)
        if ready:
            process.first = process.stderr.readline()
            if "ready" not in process.first:
                raise AssertionError(process.first + process.communicate()[1])
        return process

    def watch(self, *options):
        return subprocess.Popen([client_path, "watch", "--socket", self.channel, "--json", *options],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def play(self, recording, *options):
        """(windows, summary) of a whole recording, and what the player said. The watcher fails if the player does."""
        replay = self.replay(recording, *options)
        watcher = self.watch("--until-end")
        output, errors = watcher.communicate(timeout=120)
        said = replay.communicate(timeout=30)[1]
        lines = [json.loads(line) for line in output.splitlines()]
        if not lines:
            raise AssertionError(errors + said)
        check(watcher.returncode == replay.returncode, f"watcher and player end alike: {replay.returncode}; {errors[-80:]}")
        return lines[:-1], lines[-1], replay.returncode, said


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def check_windows(windows):
    check(all(a["t1_ns"] == b["t0_ns"] and b["window"] == a["window"] + 1 for a, b in zip(windows, windows[1:])),
          "windows follow each other without hole or overlap")
    check(windows[-1]["closed"] == "end" and all(w["closed"] == "complete" for w in windows[:-1]),
          "all windows are complete, the last one is closed by the end")
    check(sum(sum(w["drops"].values()) for w in windows[-1:]) == 0, "no window was lost")


def test_euroc(place):
    truth = euroc(place / "euroc")
    for options in (("--pace", "fast"), ("--pace", "realtime")):
        with Daemon() as daemon:
            windows, summary, code, said = daemon.play(place / "euroc", *options)
            check(code == 0, "the player ends well: " + said[-200:])
            check_windows(windows)
            check(summary["frames"] == truth["frames"], f"{truth['frames']} frames")
            check(summary["imu_samples"] == truth["imu"], f"{truth['imu']} motion rows, each once")
            check(summary["mel_slices"] == truth["slices"] and summary["mel_slices_lost"] == 0,
                  f"{truth['slices']} mel slices, none lost")
            check(abs(summary["mean_accel_mps2"] - truth["mean"]) < 1e-4, "the mean acceleration")
            check(abs(summary["step_cadence_hz"] - STEP_HZ) <= 0.03, "the step cadence")
            check(summary["bytes_copied_camera"] == 0 and summary["hot_path_allocations"] == 0, "no copy, no allocation")
            check(0 < summary["window_to_tokens_us"]["p50"] <= summary["window_to_tokens_us"]["p99"], "latency is told")
            check([w["frame"]["sequence"] for w in windows if w["frame"]] == list(range(truth["frames"])),
                  "every frame, in order")
            check(all(0 < w["sounds"] <= 3 for w in windows[1:-1]), "every window names its sound blocks")


def test_pause(place):
    """Four seconds without picture hold nothing up and lose nothing."""
    truth = euroc(place / "pause", seconds=8, cameras=("cam0",), pause=(2, 6.5), newline="\r\n")
    with Daemon() as daemon:
        windows, summary, code, said = daemon.play(place / "pause", "--pace", "fast")
        check(code == 0 and summary["frames"] == truth["frames"], "frames before and after the pause (CRLF tables): " + said)
        check(summary["imu_samples"] == truth["imu"] and summary["mel_slices"] == truth["slices"],
              "nothing else is lost meanwhile")
        check_windows(windows)


def test_media(place):
    movie = place / "movie.mkv"
    made = subprocess.run(["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc=size=160x120:rate=25:duration=4",
                           "-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000:duration=4", "-pix_fmt", "yuv420p",
                           "-c:v", "mpeg4", "-c:a", "pcm_s16le", str(movie)], capture_output=True) if shutil.which("ffmpeg") else None
    if made is None:
        print("SKIP: ffmpeg is not installed, so no media file can be made")
        return
    check(made.returncode == 0, "ffmpeg makes a movie")
    subprocess.run(["ffmpeg", "-v", "error", "-i", str(movie), "-vn", str(place / "sound.wav")], check=True)
    with Daemon() as daemon:
        idle = daemon.descriptors()
        replay = daemon.replay(movie, "--pace", "fast")
        # No motion sensor in a movie: the client asks for what there is.
        output, errors = daemon.watch("--until-end", "--sensors", "camera,microphone").communicate(timeout=60)
        check(replay.wait(timeout=20) == 0, "the movie plays to its end")
        summary = json.loads(output.splitlines()[-1])
        check(summary["frames"] == 100, "100 frames " + errors)
        check(summary["mel_slices"] == (64000 - 400) // 160 + 1, "398 mel slices")
        replay = daemon.replay(place / "sound.wav", "--pace", "fast")
        output, _ = daemon.watch("--until-end", "--sensors", "microphone").communicate(timeout=60)
        check(replay.wait(timeout=20) == 0, "sound alone plays to its end")
        summary = json.loads(output.splitlines()[-1])
        check(summary["frames"] == 0 and summary["mel_slices"] == 398, "sound alone has no frames")

        whole, cut = place / "whole.mp4", place / "cut.mp4"  # its index comes first, so that it opens although cut
        subprocess.run(["ffmpeg", "-v", "error", "-i", str(movie), "-an", "-c:v", "mpeg4", "-movflags", "+faststart",
                        str(whole)], check=True)
        cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
        (place / "empty.mp4").write_bytes(b"")
        (place / "text.mp4").write_text("This is no recording.\n")
        for name in ("empty.mp4", "text.mp4", "missing.mp4"):
            bad = daemon.replay(place / name, ready=False)
            said = bad.communicate(timeout=20)[1]
            check(bad.returncode == 1 and name in said, f"{name}: {said.strip()[-120:]}")
        bad = daemon.replay(cut, "--pace", "fast", ready=False)
        first = bad.stderr.readline()
        if "ready" in first:
            watcher = daemon.watch("--until-end", "--sensors", "camera")
            output, told = watcher.communicate(timeout=60)
            said = bad.communicate(timeout=20)[1]
            check(watcher.returncode == 1 and "damaged" in told, "the watcher of a cut movie is told: " + told.strip())
            check(bad.returncode == 1 and " s: " in said and "cut.mp4" in said, "a cut movie: " + said.strip()[-160:])
            check(0 < json.loads(output.splitlines()[-1])["frames"] < 100, "what is there is played, the stream ends")
        else:
            check(bad.wait(timeout=20) == 1 and "cut.mp4" in first, "a cut movie: " + first)
        check(wait_for(lambda: daemon.descriptors() <= idle), "no descriptor is left behind")


def test_bad_euroc(place):
    def spoilt(name, spoil):
        folder = place / name
        euroc(folder, seconds=1, cameras=("cam0",))
        spoil(folder)
        return folder

    def edit(path, change):
        lines = path.read_text().splitlines()
        path.write_text("\n".join(change(lines)) + "\n")

    def remove_image(folder):
        sorted((folder / "cam0/data").iterdir())[7].unlink()

    def break_image(folder):
        sorted((folder / "cam0/data").iterdir())[7].write_bytes(b"nothing")

    cases = {
        "missing": (remove_image, "is missing"),
        "unsorted": (lambda f: edit(f / "imu0/data.csv", lambda l: [l[0], l[2], l[1], *l[3:]]), "earlier"),
        "repeated": (lambda f: edit(f / "imu0/data.csv", lambda l: [l[0], l[1], *l[1:]]), "repeats"),
    }
    with Daemon() as daemon:
        for name, (spoil, text) in cases.items():
            bad = daemon.replay(spoilt(name, spoil), ready=False)
            said = bad.communicate(timeout=20)[1]
            check(bad.returncode == 1 and text in said, f"EuRoC {name}: {said.strip()[-120:]}")
        windows, summary, code, said = daemon.play(spoilt("broken", break_image), "--pace", "fast")
        check(code == 1 and summary["frames"] == 7 and "damaged after 0." in said, "a broken image in the middle: " + said)
        check(windows[-1]["closed"] == "end", "the stream before it ends in order")


def test_provider_killed(place):
    euroc(place / "long", seconds=6)
    with Daemon() as daemon:
        idle = daemon.descriptors()
        for attempt in range(6):
            replay = daemon.replay(place / "long")
            client = daemon.watch()
            for _ in range(5 * attempt + 1):
                client.stdout.readline()
            if attempt == 0:
                second = daemon.replay(place / "long", ready=False)
                said = second.communicate(timeout=20)[1]
                check(second.returncode == 1 and "another provider" in said, "a second provider is refused: " + said)
            replay.kill()
            replay.communicate()
            check("gone" in client.stderr.readline(), "the client is told")
            check(client.poll() is None and daemon.process.poll() is None, "client and daemon go on")
            refused = subprocess.run([client_path, "watch", "--socket", daemon.channel], capture_output=True, text=True)
            check("no provider" in refused.stderr, "a new client learns what is missing")
            client.send_signal(signal.SIGTERM)
            output, _ = client.communicate(timeout=20)
            check(client.returncode == 0 and json.loads(output.splitlines()[-1])["windows"] > 0, "the client sums up")
        replay = daemon.replay(place / "long")
        client = daemon.watch("--until-end")
        client.stdout.readline()
        replay.kill()
        replay.communicate()
        output, told = client.communicate(timeout=20)
        check(client.returncode == 1 and "before its end" in told, "who waits for the end of a killed recording is told")
        check(json.loads(output.splitlines()[-1])["windows"] > 0, "with the sum of what came")
        check(wait_for(lambda: daemon.descriptors() <= idle), "killed providers leave no descriptor")
        _, summary, code, _ = daemon.play(place / "long", "--pace", "fast")
        check(code == 0 and summary["imu_samples"] == 1200, "a provider may come back")

        replay = daemon.replay(place / "long", "--loop", "--pace", "fast")
        client = daemon.watch("--count", "300")
        output, _ = client.communicate(timeout=60)
        lines = [json.loads(line) for line in output.splitlines()]
        check(len(lines) == 301 and lines[-1]["mel_slices_lost"] == 0, "a loop goes on beyond the end without a hole")
        replay.send_signal(signal.SIGTERM)
        check(replay.wait(timeout=20) == 0, "the player stops cleanly on a signal")


def test_slow_clients(place):
    """A client that never reads or releases does not stop a recording for the others."""
    truth = euroc(place / "slow", seconds=4)
    with Daemon() as daemon:
        replay = daemon.replay(place / "slow", "--pace", "fast")
        stuck = daemon.watch("--until-end")
        stuck.stdout.readline()  # it has a window; from here on it neither reads nor releases
        stuck.send_signal(signal.SIGSTOP)
        reader = daemon.watch("--until-end")
        output, _ = reader.communicate(timeout=120)
        lines = [json.loads(line) for line in output.splitlines()]
        check(sum(lines[-2]["drops"].values()) == 0 and lines[-1]["mel_slices_lost"] == 0,
              "the reader loses nothing to the one that is stuck")
        # The two begin together but for what the first one took before it was stopped.
        check(truth["frames"] - 20 <= lines[-1]["frames"] <= truth["frames"], "the recording goes on for the reader")
        stuck.send_signal(signal.SIGCONT)
        stuck.communicate(timeout=60)
        check(replay.wait(timeout=20) == 0, "the player ends")


def test_configuration(place):
    euroc(place / "short", seconds=1, cameras=("cam0",))
    with Daemon({"sensors": {"imu": {"source": "provider"}}, "threads": {"capture_priority": 0, "pipeline_priority": 0}}) as daemon:
        refused = daemon.replay(place / "short", ready=False)
        said = refused.communicate(timeout=20)[1]
        check(refused.returncode == 1 and "/sensors/camera/source" in said, "a kind that is not configured: " + said)
        replay = daemon.replay(place / "short", "--pace", "fast", "--sensors", "imu")
        output, _ = daemon.watch("--until-end", "--sensors", "imu").communicate(timeout=60)
        check(replay.wait(timeout=20) == 0 and json.loads(output.splitlines()[-1])["imu_samples"] == 200,
              "motion alone plays")
        # Garbage on the socket, in place of a provider.
        for _ in range(20):
            hostile = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            hostile.connect(daemon.channel)
            hostile.send(os.urandom(200))
            hostile.close()
        check(daemon.process.poll() is None, "garbage harms nobody")


def test_wrong_use(_):
    """Wrong words on the command line and a user who may not: status, reason and next step."""
    for program, words, expected in ((replay_path, ["x", "--sensors", "smell"], "name camera, microphone or imu"),
                                     (replay_path, ["x", "--sensors", ""], "name camera, microphone or imu"),
                                     (replay_path, ["x", "--pace", "slow"], "realtime"),
                                     (replay_path, [], "--help"),
                                     (client_path, ["watch", "--sensors", "smell"], "name camera, microphone or imu"),
                                     (client_path, ["watch", "--sensors", ""], "name camera, microphone or imu")):
        run = subprocess.run([program, *words], capture_output=True, text=True, timeout=20)
        check(run.returncode in (1, 2) and expected in run.stderr, f"{words}: {run.stderr.strip()}")
    with Daemon() as daemon:
        if os.geteuid() != 0:
            print("SKIP: a denied user; only root can be another user")
            return
        daemon.root.chmod(0o755)
        reader = tempfile.mkdtemp()
        os.chmod(reader, 0o755)
        # Where that user can execute it.
        program = shutil.copy(client_path, reader)
        for library in (pathlib.Path(client_path).parent.parent.parent / "client").glob("libpercept.so.?"):
            shutil.copy(library, reader)
        run = subprocess.run([program, "watch", "--count", "1", "--socket", daemon.channel], user="nobody",
                             capture_output=True, text=True, timeout=20, cwd="/",
                             env={"LD_LIBRARY_PATH": reader})
        shutil.rmtree(reader)
        check(run.returncode == 1 and "--bus=system" in run.stderr and "polkit does not grant" not in run.stderr,
              "another user without a system bus: " + run.stderr.strip())


def test_walk():
    folder = os.environ.get("PERCEPTD_RECORDINGS")
    walk = pathlib.Path(folder or "/nonexistent") / "gopro-max-walk.mp4"
    if not walk.exists():
        print("SKIP: the recorded walk; set PERCEPTD_RECORDINGS to the folder that holds gopro-max-walk.mp4")
        return
    with Daemon() as daemon:
        windows, summary, code, said = daemon.play(walk, "--pace", "fast")
        check(code == 0, said[-200:])
        check_windows(windows)
        check(summary["frames"] == 315 and summary["imu_samples"] == 2082, "315 frames, 2082 rows")
        check(summary["mel_slices"] == 1050 and summary["mel_slices_lost"] == 0, "1050 mel slices, none lost")
        check(abs(summary["mean_accel_mps2"] - 9.83) < 0.05, "9.83 m/s2")
        check(abs(summary["step_cadence_hz"] - 1.67) < 0.05, "1.67 steps a second")


def main():
    place = pathlib.Path(tempfile.mkdtemp())
    try:
        for test in (test_euroc, test_pause, test_media, test_bad_euroc, test_provider_killed, test_slow_clients,
                     test_configuration, test_wrong_use):
            print("--", test.__name__)
            (place / test.__name__).mkdir()
            test(place / test.__name__)
        print("-- test_walk")
        test_walk()
    finally:
        shutil.rmtree(place)


main()
