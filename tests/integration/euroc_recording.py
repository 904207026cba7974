"""A recording in the EuRoC layout whose every number is known."""
import math
import struct
import zlib

STEP_HZ = 1.75


def png(width, height, grey):
    """A grey picture, by hand: the reader's library is not the oracle."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + bytes((grey + x + y) % 256 for x in range(width)) for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def wav(rate, samples):
    body = struct.pack(f"<{len(samples)}h", *samples)
    return (b"RIFF" + struct.pack("<I", 36 + len(body)) + b"WAVEfmt "
            + struct.pack("<IHHIIHH", 16, 1, 1, rate, rate * 2, 2, 16) + b"data" + struct.pack("<I", len(body)) + body)


def write_table(path, header, rows, newline="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(newline.join([header, *rows, ""]).encode())


def euroc(folder, seconds=6, newline="\n", cameras=("cam0", "cam1"), pause=None):
    """cam0, cam1 at 20/s, imu0 at 200/s with steps at STEP_HZ, mic0 at 16 kHz; all begin at 1000 s.
    `pause` = (from, to) seconds without picture."""
    start = 1_000_000_000_000
    for name in cameras:
        rows = []
        for i in range(20 * seconds):
            if pause and pause[0] <= i / 20 < pause[1]:
                continue
            stamp = start + i * 50_000_000
            rows.append(f"{stamp},{stamp}.png")
            (folder / name / "data").mkdir(parents=True, exist_ok=True)
            (folder / name / "data" / f"{stamp}.png").write_bytes(png(64, 48, i * 3))
        write_table(folder / name / "data.csv", "#timestamp [ns],filename", rows, newline)
    imu, magnitudes = [], []
    for i in range(200 * seconds):
        z = 9.81 + 1.5 * math.sin(2 * math.pi * STEP_HZ * i / 200)
        magnitudes.append(math.hypot(0.3, z))
        imu.append(f"{start + i * 5_000_000},0.01,0.02,0.03,0.3,0,{z:.9f}")
    write_table(folder / "imu0/data.csv", "#timestamp [ns],w_x,w_y,w_z,a_x,a_y,a_z", imu, newline)
    sound = [int(8000 * math.sin(2 * math.pi * 440 * i / 16000)) for i in range(16000 * seconds)]
    write_table(folder / "mic0/data.csv", "#timestamp [ns],first_sample", [f"{start},0"], newline)
    (folder / "mic0/data.wav").write_bytes(wav(16000, sound))
    return {"frames": 20 * seconds - (round(20 * (pause[1] - pause[0])) if pause else 0), "imu": 200 * seconds,
            "slices": (16000 * seconds - 400) // 160 + 1, "mean": sum(magnitudes) / len(magnitudes)}
