"""GGML block formats in numpy: values to bytes, and bytes back to values. Groups of 32 along the last axis.

Q8_0: fp16 scale, 32 int8. Q4_0: fp16 scale, 16 bytes; byte i holds element i (low half) and i + 16 (high half), each
plus 8. The scale is rounded to fp16 first and the integers are chosen for the rounded scale.
"""
import numpy


def q8_0(array: numpy.ndarray) -> bytes:
    groups = array.astype(numpy.float32).reshape(-1, 32)
    scale = (numpy.abs(groups).max(axis=1, keepdims=True) / 127).astype(numpy.float16)
    inverse = reciprocal(scale)
    integers = numpy.clip(numpy.rint(groups * inverse), -127, 127).astype(numpy.int8)
    return numpy.concatenate([scale.view(numpy.uint8), integers.view(numpy.uint8)], axis=1).tobytes()


def q4_0(array: numpy.ndarray) -> bytes:
    groups = array.astype(numpy.float32).reshape(-1, 32)
    at = numpy.abs(groups).argmax(axis=1)
    scale = (groups[numpy.arange(len(groups)), at] / -8).astype(numpy.float16)[:, None]
    integers = numpy.clip(numpy.floor(groups * reciprocal(scale) + 8.5), 0, 15).astype(numpy.uint8)
    packed = integers[:, :16] | (integers[:, 16:] << 4)
    return numpy.concatenate([scale.view(numpy.uint8), packed], axis=1).tobytes()


def reciprocal(scale: numpy.ndarray) -> numpy.ndarray:
    wide = scale.astype(numpy.float32)
    return numpy.divide(1, wide, out=numpy.zeros_like(wide), where=wide != 0)


def f16(array: numpy.ndarray) -> bytes:
    return array.astype(numpy.float16).tobytes()


def f32(array: numpy.ndarray) -> bytes:
    return array.astype(numpy.float32).tobytes()


ENCODERS = {"f32": f32, "f16": f16, "q8_0": q8_0, "q4_0": q4_0}


def decoded(data: bytes, kind: str, shape) -> numpy.ndarray:
    """The values that the bytes stand for, float32."""
    if kind in ("f32", "f16"):
        return numpy.frombuffer(data, "<f4" if kind == "f32" else "<f2").astype(numpy.float32).reshape(shape)
    size = 34 if kind == "q8_0" else 18
    blocks = numpy.frombuffer(data, numpy.uint8).reshape(-1, size)
    scale = blocks[:, :2].copy().view("<f2").astype(numpy.float32)
    if kind == "q8_0":
        integers = blocks[:, 2:].copy().view(numpy.int8).astype(numpy.float32)
    else:
        integers = numpy.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1).astype(numpy.float32) - 8
    return (integers * scale).reshape(shape)


def rounded(array: numpy.ndarray, kind: str) -> numpy.ndarray:
    return decoded(ENCODERS[kind](array), kind, array.shape)
