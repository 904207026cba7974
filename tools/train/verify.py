"""An independent reader: verify.py MODEL.gguf CORPORA [--dialogues N] prints the held-out loss of the file.

Shares no code with the writer or the trainer: it parses the container, takes vocabulary, merges and shape from it, tokenizes
the test dialogues itself, and runs the forward pass in numpy. Plain and slow on purpose.
"""
import argparse
import json
import re
import struct

import numpy as np

SCALAR = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


class Reader:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 0
        assert self.data[:4] == b"GGUF" and struct.unpack_from("<I", self.data, 4)[0] == 3
        tensors, entries = struct.unpack_from("<QQ", self.data, 8)
        self.at = 24
        self.meta = {}
        for _ in range(entries):
            key = self.string()
            self.meta[key] = self.value(self.scalar("<I"))
        infos = []
        for _ in range(tensors):
            name, rank = self.string(), self.scalar("<I")
            dims = [self.scalar("<Q") for _ in range(rank)]
            infos.append((name, dims[::-1], self.scalar("<I"), self.scalar("<Q")))
        align = self.meta.get("general.alignment", 32)
        base = (self.at + align - 1) // align * align
        self.tensor = {name: self.values(base + offset, shape, kind) for name, shape, kind, offset in infos}

    def scalar(self, form):
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def string(self):
        size = self.scalar("<Q")
        self.at += size
        return self.data[self.at - size:self.at].decode("utf-8")

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            element, count = self.scalar("<I"), self.scalar("<Q")
            return [self.value(element) for _ in range(count)]
        return self.scalar(SCALAR[kind])

    def values(self, start, shape, kind):
        """Element by element from the format's definition: Q8_0 = d * q; Q4_0 = d * (nibble - 8), low nibbles first."""
        assert start % 32 == 0
        count = int(np.prod(shape))
        if kind in (0, 1):
            return np.frombuffer(self.data, "<f4" if kind == 0 else "<f2", count, start).astype(np.float32).reshape(shape)
        layout = np.dtype([("d", "<f2"), ("q", "i1", 32)] if kind == 8 else [("d", "<f2"), ("q", "u1", 16)])
        assert kind in (8, 2) and count % 32 == 0
        blocks = np.frombuffer(self.data, layout, count // 32, start)
        q = blocks["q"]
        if kind == 2:
            q = np.hstack([q % 16, q // 16]).astype(np.float32) - 8
        return (blocks["d"].astype(np.float32)[:, None] * q).astype(np.float32).reshape(shape)


class Vocabulary:
    def __init__(self, meta):
        assert meta["tokenizer.ggml.model"] == "gpt2" and meta["tokenizer.ggml.pre"] == "gpt-2"
        self.id_of = {token: i for i, token in enumerate(meta["tokenizer.ggml.tokens"])}
        self.rank = {tuple(merge.split(" ")): i for i, merge in enumerate(meta["tokenizer.ggml.merges"])}
        # ASCII is all that the corpora hold, so the simple classes are exact here.
        self.split = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")

    def encode(self, text):
        ids = []
        for word in self.split.findall(text):
            parts = ["\u0120" if c == " " else c for c in word]
            while len(parts) > 1:
                pairs = [(self.rank.get(pair, 1 << 30), i) for i, pair in enumerate(zip(parts, parts[1:]))]
                rank, i = min(pairs)
                if rank == 1 << 30:
                    break
                parts[i:i + 2] = [parts[i] + parts[i + 1]]
            ids += [self.id_of[part] for part in parts]
        return ids


def normed(x, weight, epsilon):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def rotated(x, base):
    """x [time, heads, size]: element pairs (2i, 2i+1) turn by time * base^(-2i/size)."""
    time, _, size = x.shape
    pairs = x.reshape(time, -1, size // 2, 2).astype(np.float64)
    turn = np.exp(1j * np.arange(time)[:, None] * base ** (-np.arange(0, size, 2) / size)[None, :])
    spun = (pairs[..., 0] + 1j * pairs[..., 1]) * turn[:, None, :]
    return np.stack([spun.real, spun.imag], -1).reshape(x.shape).astype(np.float32)


def logits_of(file, ids):
    meta, t = file.meta, file.tensor
    heads, kv = meta["llama.attention.head_count"], meta["llama.attention.head_count_kv"]
    epsilon, base = meta["llama.attention.layer_norm_rms_epsilon"], meta["llama.rope.freq_base"]
    x = t["token_embd.weight"][ids]
    time, width = x.shape
    size = width // heads
    future = np.triu(np.ones((time, time), bool), 1)
    for i in range(meta["llama.block_count"]):
        w = {name: t[f"blk.{i}.{name}.weight"] for name in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output",
                                                           "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")}
        y = normed(x, w["attn_norm"], epsilon)
        q = rotated((y @ w["attn_q"].T).reshape(time, heads, size), base)
        k = rotated((y @ w["attn_k"].T).reshape(time, kv, size), base)
        v = (y @ w["attn_v"].T).reshape(time, kv, size)
        mixed = np.empty((time, heads, size), np.float32)
        for h in range(heads):
            g = h * kv // heads
            score = np.where(future, -np.inf, q[:, h] @ k[:, g].T / np.sqrt(size))
            score = np.exp(score - score.max(-1, keepdims=True))
            mixed[:, h] = score / score.sum(-1, keepdims=True) @ v[:, g]
        x = x + mixed.reshape(time, width) @ w["attn_output"].T
        y = normed(x, w["ffn_norm"], epsilon)
        gate = y @ w["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w["ffn_up"].T)) @ w["ffn_down"].T
    return normed(x, t["output_norm.weight"], epsilon) @ t.get("output.weight", t["token_embd.weight"]).T


def dialogue_ids(vocabulary, block):
    ids = [vocabulary.id_of["<|begin|>"]]
    for line in block.strip().split("\n"):
        text = vocabulary.encode(line[2:].strip())
        ids += ([vocabulary.id_of["<|user|>"]] + text + [vocabulary.id_of["<|assistant|>"]] if line[0] == "U"
                else text + [vocabulary.id_of["<|end|>"]])
    return ids


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("corpora")
    parser.add_argument("--dialogues", type=int, default=100, help="every n-th test dialogue, so many; 0: all")
    options = parser.parse_args()
    file = Reader(options.model)
    vocabulary = Vocabulary(file.meta)
    blocks = [block for block in open(f"{options.corpora}/sgd-test.txt", encoding="utf-8").read().split("\n\n") if block.strip()]
    if options.dialogues:
        blocks = blocks[::len(blocks) // options.dialogues][:options.dialogues]
    nats, tokens = 0.0, 0
    for block in blocks:
        ids = np.array(dialogue_ids(vocabulary, block))[:file.meta["llama.context_length"]]
        logits = logits_of(file, ids[:-1]).astype(np.float64)
        top = logits.max(-1)
        nats += float((np.log(np.exp(logits - top[:, None]).sum(-1)) + top - logits[np.arange(len(ids) - 1), ids[1:]]).sum())
        tokens += len(ids) - 1
    print(json.dumps(dict(model=options.model, dialogues=len(blocks), tokens=tokens, nats_per_token=nats / tokens)))


if __name__ == "__main__":
    main()
