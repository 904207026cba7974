"""Byte-level BPE in the "gpt2" form of GGUF: training, encoding, decoding, identity digest.

Ids: the special tokens, then the 256 bytes, then one entry per merge in the order learned. Ties are broken by id, so the
same text always gives the same table. Python's standard library only; any runtime that reads GGUF vocabularies of this
type with the "gpt-2" splitting rule gives the same ids.
"""
import functools
import hashlib
import heapq
import json
import re
import struct
import sys
import unicodedata
from collections import Counter, defaultdict
from typing import Dict, Iterable, List, Tuple

NAMED_SPECIALS = ["<|pad|>", "<|begin|>", "<|end|>", "<|user|>", "<|assistant|>"]
SPECIALS = NAMED_SPECIALS + [f"<|reserved_{i}|>" for i in range(64)]


def byte_letters() -> List[str]:
    """The printable stand-in of each byte, as GPT-2 defined it."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters, extra = {}, 0
    for byte in range(256):
        if byte in keep:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(256 + extra)
            extra += 1
    return [letters[byte] for byte in range(256)]


def category_ranges(initial: str) -> str:
    """A regular-expression class body of all code points whose general category starts with `initial`."""
    ranges, start = [], None
    for point in range(sys.maxunicode + 2):
        inside = point <= sys.maxunicode and unicodedata.category(chr(point))[0] == initial
        if inside and start is None:
            start = point
        elif not inside and start is not None:
            ranges.append(f"\\U{start:08x}-\\U{point - 1:08x}")
            start = None
    return "".join(ranges)


@functools.lru_cache(maxsize=1)
def splitter() -> "re.Pattern":
    letter, number = category_ranges("L"), category_ranges("N")
    return re.compile(r"'s|'t|'re|'ve|'m|'ll|'d"
                      f"| ?[{letter}]+| ?[{number}]+| ?[^\\s{letter}{number}]+|\\s+(?!\\S)|\\s+")


class Tokenizer:
    """Fixed tables plus a cache of words already split."""

    def __init__(self, merges: List[Tuple[int, int]]):
        self.letters = byte_letters()
        self.merges = [tuple(merge) for merge in merges]
        self.bytes_of: List[bytes] = [text.encode() for text in SPECIALS] + [bytes([b]) for b in range(256)]
        for left, right in self.merges:
            self.bytes_of.append(self.bytes_of[left] + self.bytes_of[right])
        self.rank = {merge: i for i, merge in enumerate(self.merges)}
        self.pad, self.begin, self.end, self.user, self.assistant = range(5)
        self.first_byte = len(SPECIALS)
        self.words: Dict[str, List[int]] = {}
        self.split = splitter()

    def __len__(self) -> int:
        return len(self.bytes_of)

    def encode_word(self, word: str) -> List[int]:
        ids = [self.first_byte + byte for byte in word.encode("utf-8")]
        while len(ids) > 1:
            ranks = [self.rank.get(pair, len(self.rank)) for pair in zip(ids, ids[1:])]
            best = min(ranks)
            if best == len(self.rank):
                break
            at = ranks.index(best)
            ids[at:at + 2] = [self.first_byte + 256 + best]
        return ids

    def encode(self, text: str) -> List[int]:
        """Text to ids. Special tokens written out in the text stay text."""
        ids: List[int] = []
        for word in self.split.findall(text):
            if word not in self.words:
                self.words[word] = self.encode_word(word)
            ids += self.words[word]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self.bytes_of[i] for i in ids).decode("utf-8", "replace")

    def written(self, token: int) -> str:
        """The entry as GGUF writes it: stand-in letters, or the name of a special token."""
        if token < len(SPECIALS):
            return SPECIALS[token]
        return "".join(self.letters[byte] for byte in self.bytes_of[token])

    def digest(self) -> str:
        """sha256 over type, bos, eos, add flags and the bytes of every id: equal digests mean interchangeable ids."""
        kind_gpt2, adds_bos, adds_eos = 2, 1, 0
        state = hashlib.sha256(b"perceptd vocabulary 1\n")
        state.update(struct.pack("<6Q", kind_gpt2, self.begin, self.end, adds_bos, adds_eos, len(self)))
        for entry in self.bytes_of:
            state.update(struct.pack("<Q", len(entry)) + entry)
        return state.hexdigest()

    def save(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"merges": self.merges, "digest": self.digest()}, file)

    @staticmethod
    def load(path: str) -> "Tokenizer":
        with open(path, encoding="utf-8") as file:
            return Tokenizer(json.load(file)["merges"])


def count_pairs(words: List[List[int]], counts: List[int]):
    pair_count, where = Counter(), defaultdict(set)
    for index, word in enumerate(words):
        for pair in zip(word, word[1:]):
            pair_count[pair] += counts[index]
            where[pair].add(index)
    return pair_count, where


def merged(word: List[int], pair: Tuple[int, int], new: int) -> List[int]:
    out, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def train(texts: Iterable[str], size: int) -> Tokenizer:
    """Learns merges until the vocabulary has `size` entries. Deterministic: most frequent pair, ties by lower ids."""
    split, frequency = splitter(), Counter()
    for text in texts:
        frequency.update(split.findall(text))
    first_byte = len(SPECIALS)
    words = [[first_byte + byte for byte in word.encode("utf-8")] for word in frequency]
    counts = list(frequency.values())
    pair_count, where = count_pairs(words, counts)
    heap = [(-count, pair) for pair, count in pair_count.items()]
    heapq.heapify(heap)
    merges: List[Tuple[int, int]] = []
    while first_byte + 256 + len(merges) < size and heap:
        negative, pair = heapq.heappop(heap)
        if pair_count[pair] != -negative:
            continue  # outdated entry: the true count was pushed when it changed
        new, changed = first_byte + 256 + len(merges), set()
        merges.append(pair)
        for index in where.pop(pair):
            old = words[index]
            for neighbour in zip(old, old[1:]):
                pair_count[neighbour] -= counts[index]
                changed.add(neighbour)
            words[index] = merged(old, pair, new)
            for neighbour in zip(words[index], words[index][1:]):
                pair_count[neighbour] += counts[index]
                where[neighbour].add(index)
                changed.add(neighbour)
        for neighbour in changed:
            if pair_count[neighbour] > 0 and neighbour != pair:
                heapq.heappush(heap, (-pair_count[neighbour], neighbour))
    return Tokenizer(merges)
