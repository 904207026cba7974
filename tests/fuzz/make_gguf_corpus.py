#!/usr/bin/env python3
"""Writes the seed inputs of fuzz_gguf: small, valid GGUF files, one per feature. Usage: make_gguf_corpus.py FOLDER"""
import pathlib
import struct
import sys

U8, I32, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 5, 4, 6, 7, 8, 9, 10


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, item):
    if kind == STRING:
        return text(item)
    return struct.pack({U8: "<B", I32: "<i", U32: "<I", F32: "<f", BOOL: "<B", U64: "<Q"}[kind], item)


def entry(key, kind, item, element=None):
    if kind == ARRAY:
        body = struct.pack("<IQ", element, len(item)) + b"".join(value(element, one) for one in item)
    else:
        body = value(kind, item)
    return text(key) + struct.pack("<I", kind) + body


def gguf(entries, tensors=(), version=3):
    """tensors: (name, dims, type number, bytes)"""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries)
    data = b""
    for name, dims, kind, content in tensors:
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += content + bytes(-len(content) % 32)
    return head + bytes(-len(head) % 32) + data


def spm(with_bytes):
    tokens = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if with_bytes else []) + ["\u2581", "a", "\u2581a", "aa"]
    kinds = [2, 3, 3] + [6] * (256 if with_bytes else 0) + [1, 1, 1, 4]
    key = "tokenizer.ggml."
    return [entry(key + "model", STRING, "llama"), entry(key + "tokens", ARRAY, tokens, STRING),
            entry(key + "scores", ARRAY, [-float(i) for i in range(len(tokens))], F32),
            entry(key + "token_type", ARRAY, kinds, I32), entry(key + "add_eos_token", BOOL, 1)]


def bpe(pre):
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in kept]
    tokens = [chr(b) for b in kept] + [chr(256 + i) for i in range(len(rest))] + ["th", "the", "\u0120the"]
    key = "tokenizer.ggml."
    return [entry(key + "model", STRING, "gpt2"), entry(key + "pre", STRING, pre), entry(key + "tokens", ARRAY, tokens, STRING),
            entry(key + "merges", ARRAY, ["t h", "th e", "\u0120 the"], STRING)]


def decoder():
    counts = {"context_length": 8, "embedding_length": 4, "block_count": 1, "feed_forward_length": 4, "attention.head_count": 2}
    entries = [entry("general.architecture", STRING, "llama"), entry("llama.attention.layer_norm_rms_epsilon", F32, 1e-5)]
    entries += [entry("llama." + key, U32, count) for key, count in counts.items()]
    shapes = {"token_embd.weight": [4, 7], "output_norm.weight": [4], "blk.0.attn_norm.weight": [4], "blk.0.ffn_norm.weight": [4]}
    shapes |= {f"blk.0.{part}.weight": [4, 4] for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")}

    def zeros(dims):
        return bytes(4 * dims[0] * (dims[1] if len(dims) > 1 else 1))
    return gguf(entries + spm(False), [(name, dims, 0, zeros(dims)) for name, dims in shapes.items()])


def own():
    entries = [entry("perceptd.quantization.t", STRING, "int4-g32"), entry("perceptd.quantization.t.columns", U64, 32),
               entry("perceptd.quantization.f", STRING, "fp8-e4m3"), entry("perceptd.quantization.f.columns", U64, 8)]
    return gguf(entries, [("t", [19, 1], 24, bytes(range(19))), ("f", [8, 2], 24, bytes(range(16))), ("f.row_scale", [2], 0, bytes(8))])


def blocks():
    sizes = {1: (1, 2), 2: (32, 18), 3: (32, 20), 8: (32, 34), 12: (256, 144), 14: (256, 210), 30: (1, 2)}
    return gguf([entry("general.alignment", U32, 32)], [(f"t{kind}", [count], kind, bytes(size)) for kind, (count, size) in sizes.items()], 2)


folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent / "corpus" / "fuzz_gguf"
folder.mkdir(parents=True, exist_ok=True)
for name, content in {"decoder": decoder(), "spm": gguf(spm(True)), "bpe_gpt2": gguf(bpe("gpt-2")), "bpe_llama": gguf(bpe("llama-bpe")),
                      "bpe_qwen2": gguf(bpe("qwen2")), "own": own(), "blocks": blocks()}.items():
    (folder / name).write_bytes(content)
