#!/usr/bin/env python3
"""Writes the seed inputs of the fuzz targets: small, valid, one per feature. Usage: make_corpus.py [folder]"""
import pathlib
import struct
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "support"))
from protobuf_by_hand import message, varint

folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "corpus"


def write(target, name, content):
    (folder / target).mkdir(parents=True, exist_ok=True)
    (folder / target / name).write_bytes(content)


def packets(*parts):
    """(act, packet) pairs as fuzz_session and fuzz_client cut them."""
    return b"".join(bytes([act]) + struct.pack("<H", len(packet)) + packet for act, packet in parts)


def client_messages():
    hello = message(f1=message(f1=1, f2=1))
    subscribe = message(f2=message(f1=bytes([1])))
    all_sensors = message(f2=message(f1=bytes([1, 2, 3])))
    release = message(f3=message(f1=varint(1) + varint(2)))
    bye = message(f4=b"")
    for name, content in {"hello": hello, "subscribe": subscribe, "all_sensors": all_sensors, "release": release,
                          "bye": bye, "unknown_sensor": message(f2=message(f1=bytes([9])))}.items():
        write("fuzz_wire", name, content)
    write("fuzz_session", "polite", packets((2, hello), (2, subscribe), (3, b"\x00"), (3, release), (0, bye)))
    write("fuzz_session", "windows", packets((2, hello), (2, subscribe), *[(1, message(f3=b""))] * 12, (2, release)))
    write("fuzz_session", "revoked", packets((2, hello), (3, subscribe), (5, release), (13, release)))
    write("fuzz_session", "descriptors", packets((2, hello), (0xf2, subscribe)))
    write("fuzz_session", "twice", packets((2, hello), (2, hello)))


def questions():
    generate = message(f20=message(f1=7, f2=b"small", f4=b"hello", f6=20, f7=[b"stop", b"\n"], f8=9))
    stop = message(f21=message(f1=5))
    resume = message(f22=message(f1=8, f2=5, f3=3))
    hello = message(f1=message(f1=1, f2=1))
    for name, content in {"generate": generate, "stop_generation": stop, "resume": resume}.items():
        write("fuzz_wire", name, content)
    write("fuzz_session", "questions", packets((2, hello), (2, generate), (2, resume), (2, stop), (2, generate)))
    begun = message(f20=message(f1=1, f2=5, f3=5, f5=9, f6=20, f7=512))
    refused = message(f21=message(f1=2, f2=message(f1=6, f2=b"too many", f3=4, f4=4)))
    token = message(f22=message(f1=5, f3=varint(17) + varint(400), f4="h\u00e9".encode(), f5=1, f7=message(f1=9, f2=512)))
    write("fuzz_client", "answers", packets((0, begun), (0, token), (0, refused), (0, token)))


def crc32c(content):
    value = 0xffffffff
    for byte in content:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82f63b78 if value & 1 else 0)
    return value ^ 0xffffffff


def journals():
    """By the format's description in daemon/store/record.hpp, not by its code."""
    def text(content):
        return varint(len(content)) + content

    def ids(numbers):
        return varint(len(numbers)) + b"".join(varint(number) for number in numbers)

    def record(seq, kind, position, numbers, detail):
        payload = (struct.pack("<QB", seq, kind) + varint(7) + varint(position) + struct.pack("<QQ", 11, 12) + ids(numbers)
                   + text(detail))
        return struct.pack("<II", len(payload), crc32c(payload)) + payload

    options = struct.pack("<Q4f", 11, 0.8, 1.0, 0.0, 1.0) + varint(0) + varint(64) + varint(1) + varint(3) + struct.pack(
        "<f", -1.0) + varint(20) + varint(1) + text(b"stop") + varint(1)
    request = varint(1) + text(b"1.0.0") + options
    start = varint(1000) + varint(7) + text(b"small") + text(b"ab") + text(request) + varint(1700000000000)
    begin = record(0, 1, 3, [1, 2, 300], start)
    whole = begin + record(1, 2, 3, [5, 4000000000], b"") + record(2, 2, 5, [6], b"") + record(3, 3, 6, [], b"stop_token")
    write("fuzz_journal", "whole", whole)
    write("fuzz_journal", "torn", whole[:-5])
    write("fuzz_journal", "continued", record(0, 1, 43, [1, 2, 300], start) + record(1, 2, 43, [9], b""))


def server_messages():
    def arena(number, kind):
        return message(f1=number, f2=kind, f3=2, f4=65536, f5=65536, f6=1)

    def block(arena_id, size):
        return message(f1=arena_id, f2=0, f3=2, f5=size)

    camera = message(f1=32, f2=16, f3=64)
    streams = message(f2=message(f1=[arena(1, 1), arena(2, 3), arena(3, 4)], f2=camera, f5=0))
    motion = message(f2=message(f1=[arena(4, 5)]))
    more = message(f2=message(f1=[arena(1, 1)], f2=camera, f5=1))
    window = message(f3=message(f1=7, f2=100, f3=200, f7=message(f1=block(1, 4096), f2=150, f4=3)))
    empty = message(f3=message(f1=8, f2=100, f3=200))
    notice = message(f4=message(f1=1, f2=b"the camera is silent"))
    error = message(f5=message(f1=6, f2=b"too many sessions", f3=16, f4=16, f6=0))
    write("fuzz_client", "window", packets((6, streams), (0, window), (0, notice), (0, empty)))
    write("fuzz_client", "more_follow", packets((2, more), (2, motion), (0, window)))
    write("fuzz_client", "error", packets((0, error), (0, notice)))
    write("fuzz_client", "descriptors", packets((2, streams), (10, motion)))
    write("fuzz_client", "end", packets((6, streams), (0, message(f4=message(f1=4, f2=b"over"))), (0, window)))


def shared_memory():
    patches = struct.pack("<IIQIIIIIIfI", 0x50435250, 2, 7, 32, 16, 16, 2, 1, 1, 9.5, 0) + bytes(24)
    mel = struct.pack("<IIQIIfI", 0x4d435250, 1, 7, 1, 80, -20.0, 0) + bytes(336)
    motion = struct.pack("<IIQIIffff", 0x49435250, 2, 7, 1, 1, 1.9, 0.0, 0.0, 0.1) + bytes(2 * 56 + 48)
    header = struct.pack("<IIIIQQQ", 0x41435250, 1, 2, 0, 0, 65536, 65536) + struct.pack("<4Q", 1, 2, 1, 1)
    for kind, (name, content) in enumerate({"patches": patches, "mel": mel, "motion": motion,
                                            "header": header}.items()):
        write("fuzz_layout", name, bytes([kind, 0, 255, 0]) + content)
        write("fuzz_layout", name + "_short", bytes([kind, 8, 2, 1]) + content)


def configurations():
    write("fuzz_configuration", "empty", b"{}")
    write("fuzz_configuration", "comments", b'// one\n{ /* two */ "log": { "level": "debug" } }')
    write("fuzz_configuration", "sensors", b'{"sensors": {"camera": {"source": "synthetic", "rate_hz": 30}}}')
    write("fuzz_configuration", "heaps", b'{"arena": {"heaps": ["dma_heap:system", "memfd"], "camera_slot_count": 16}}')
    write("fuzz_configuration", "defaults", b'{"tokens": null, "windows": {"deadline_ms": null}}')


def recordings():
    def item(key, kind, size, count, value):
        return key + bytes([ord(kind) if kind else 0, size]) + struct.pack(">H", count) + value + bytes(-len(value) % 4)

    def nested(key, *items):
        value = b"".join(items)
        return item(key, "", 1, len(value), value)

    accel = item(b"ACCL", "s", 6, 2, struct.pack(">6h", 10, 20, 30, 40, -50, 60))
    gyro = item(b"GYRO", "s", 6, 2, struct.pack(">6h", 100, 200, 300, 400, 500, 600))
    scale = item(b"SCAL", "s", 2, 1, struct.pack(">h", 10))
    axes = item(b"ORIN", "c", 1, 3, b"XzY")
    write("fuzz_gpmf", "both", nested(b"DEVC", nested(b"STRM", axes, scale, accel), nested(b"STRM", scale, gyro)))
    write("fuzz_gpmf", "accel", nested(b"DEVC", nested(b"STRM", scale, accel)))
    rows = b"".join(b"%d,0.1,-0.2,0.3,9.8,0,1e-3\n" % (1000 + 5000000 * i) for i in range(4))
    write("fuzz_csv", "imu", b"#timestamp [ns],w_x,w_y,w_z,a_x,a_y,a_z\n" + rows)
    write("fuzz_csv", "anchors", b"#timestamp [ns],a,b\r\n10,1.5,3\r\n20,-2e3,4\r\n")


client_messages()
questions()
journals()
server_messages()
shared_memory()
configurations()
recordings()
