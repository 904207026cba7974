"""Writes GGUF version 3, arch "llama", from a master archive: gguf.py MASTER.npz SHAPE TOKENIZER.json OUT.gguf [options].

Tensor and metadata names are the ecosystem's, alignment is 32 bytes. Matrices go to one chosen format, norms stay float32.
"""
import argparse
import json
import os
import struct

import numpy

import bpe
import quantize

ALIGNMENT = 32
TENSOR_TYPE = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}
FILE_TYPE = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 7}
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
NORMAL, CONTROL = 1, 3
CHAT_TEMPLATE = ("{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}<|user|>{{ m['content'] }}"
                 "{% elif m['role'] == 'assistant' %}<|assistant|>{{ m['content'] }}<|end|>{% endif %}{% endfor %}"
                 "{% if add_generation_prompt %}<|assistant|>{% endif %}")


def packed_string(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def packed_value(kind: int, value) -> bytes:
    if kind == STRING:
        return packed_string(value)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], value)


def packed_entry(key: str, kind: int, value, element: int = 0) -> bytes:
    head = packed_string(key) + struct.pack("<I", kind)
    if kind != ARRAY:
        return head + packed_value(kind, value)
    return head + struct.pack("<IQ", element, len(value)) + b"".join(packed_value(element, item) for item in value)


def shape_entries(shape: dict) -> list:
    head = shape["width"] // shape["heads"]
    return [packed_entry("llama.context_length", U32, shape["context"]),
            packed_entry("llama.embedding_length", U32, shape["width"]),
            packed_entry("llama.block_count", U32, shape["layers"]),
            packed_entry("llama.feed_forward_length", U32, shape["ffn"]),
            packed_entry("llama.attention.head_count", U32, shape["heads"]),
            packed_entry("llama.attention.head_count_kv", U32, shape["kv_heads"]),
            packed_entry("llama.attention.layer_norm_rms_epsilon", F32, shape["epsilon"]),
            packed_entry("llama.rope.dimension_count", U32, head),
            packed_entry("llama.rope.freq_base", F32, shape["rope_base"]),
            packed_entry("llama.vocab_size", U32, shape["vocab"])]


def tokenizer_entries(tokenizer: bpe.Tokenizer) -> list:
    count, specials = len(tokenizer), len(bpe.SPECIALS)
    tokens = [tokenizer.written(i) for i in range(count)]
    merges = [f"{tokenizer.written(left)} {tokenizer.written(right)}" for left, right in tokenizer.merges]
    return [packed_entry("tokenizer.ggml.model", STRING, "gpt2"),
            packed_entry("tokenizer.ggml.pre", STRING, "gpt-2"),
            packed_entry("tokenizer.ggml.tokens", ARRAY, tokens, STRING),
            packed_entry("tokenizer.ggml.token_type", ARRAY, [CONTROL if i < specials else NORMAL for i in range(count)], I32),
            packed_entry("tokenizer.ggml.merges", ARRAY, merges, STRING),
            packed_entry("tokenizer.ggml.bos_token_id", U32, tokenizer.begin),
            packed_entry("tokenizer.ggml.eos_token_id", U32, tokenizer.end),
            packed_entry("tokenizer.ggml.padding_token_id", U32, tokenizer.pad),
            packed_entry("tokenizer.ggml.add_bos_token", BOOL, True),
            packed_entry("tokenizer.ggml.add_eos_token", BOOL, False),
            packed_entry("tokenizer.chat_template", STRING, CHAT_TEMPLATE)]


def write(path: str, name: str, arrays: dict, shape: dict, tokenizer: bpe.Tokenizer, kind: str) -> None:
    """`arrays`: GGUF tensor name to numpy array; `shape`: the fields of model.Shape."""
    entries = [packed_entry("general.architecture", STRING, "llama"), packed_entry("general.name", STRING, name),
               packed_entry("general.license", STRING, "cc-by-sa-4.0"), packed_entry("general.alignment", U32, ALIGNMENT),
               packed_entry("general.file_type", U32, FILE_TYPE[kind]),
               packed_entry("general.quantization_version", U32, 2)] + shape_entries(shape) + tokenizer_entries(tokenizer)
    table, blobs, offset = [], [], 0
    for tensor, array in arrays.items():
        format_of = kind if array.ndim == 2 else "f32"
        data = quantize.ENCODERS[format_of](array)
        dims = array.shape[::-1]
        table.append(packed_string(tensor) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
                     + struct.pack("<IQ", TENSOR_TYPE[format_of], offset))
        blobs.append(data + bytes(-len(data) % ALIGNMENT))
        offset += len(blobs[-1])
    header = b"GGUF" + struct.pack("<IQQ", 3, len(arrays), len(entries)) + b"".join(entries) + b"".join(table)
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % ALIGNMENT))
        for blob in blobs:
            file.write(blob)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("master")
    parser.add_argument("shape", help="name in shapes.json")
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    parser.add_argument("--name", default="unnamed")
    parser.add_argument("--type", choices=sorted(TENSOR_TYPE), default="q8_0")
    options = parser.parse_args()
    with numpy.load(options.master) as archive:
        arrays = {name: archive[name].astype(numpy.float32) for name in archive.files}
    write(options.out, options.name, arrays, load_shape(options.shape), bpe.Tokenizer.load(options.tokenizer), options.type)


def load_shape(name: str) -> dict:
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "shapes.json"), encoding="utf-8") as file:
        return json.load(file)[name]


if __name__ == "__main__":
    main()
