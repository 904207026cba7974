#!/usr/bin/env python3
"""Makes tokenizer_golden.hpp: tiny vocabularies and what two independent tokenizers make of difficult texts.

Run: /usr/bin/python3 make_tokenizer_golden.py > tokenizer_golden.hpp   (needs python3-sentencepiece and python3-regex)
SentencePiece: Debian's own library, trained here on TEXT. Byte-level BPE: the published regular expressions run by the
`regex` module, and the textbook merge loop. Nothing is shared with the C++ code.
"""
import io
import random

import regex
import sentencepiece

TEXT = """The glasses look at the kitchen table. There is a red cup on the table, and a blue plate beside the cup.
What is on the left? On the left there is a window, and behind the window the street is wet from the rain.
How many people are there? There are three people, and two of them are talking about the weather in the street.
Read the sign to me. The sign says that the shop opens at nine and closes at eighteen, but not on Sunday.
Don't walk now, it's red. They'll wait, we've seen it, I'm sure you're right, and she'd say the same.
Remember where the keys are. The keys are on the shelf, next to the cup. In 2024 there were 365 days and 12 months.
Fa\u00e7ade, na\u00efve, \u00fcber, stra\u00dfe, \u00e9t\u00e9, ni\u00f1o. Translate this sentence, then read the translation aloud to me."""

CASES = [
    "", " ", "  ", "   leading", "trailing   ", "a", "The table", "the  cup   on\tthe\n\nleft", "don't DON'T they'll I'M we'VE 's",
    "2024 years, 1234567 and \u0661\u0662\u0663\u0664", "\u4f60\u597d\u4e16\u754c", "\U0001f600 smile\U0001f9d1\u200d\U0001f680", "na\u00efve fa\u00e7ade \u00fcber",
    "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u0639\u0631\u0628\u064a", "line\r\nline\r\n\r\n  end", "x = {1, 2};  // code\n\tif (a!=b) return;",
    "\u00a0no-break\u3000wide\u2003em", "!!!???...\n\n", "a\u0301b e\u0308", "\u00bd \u2167 \u00b2", "''s 'S 'x '", "tab\t\tspace \t mix \n x",
    "thethethethethe tablestablestables", "_under_score__", "\u2028line sep", "mixed123abc456", "  \n  \n x", "(left)[right]{cup}<sign>",
]
PATTERNS = {
    "Gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "Llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "Qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def alphabet():
    """Byte -> character, as byte-level vocabularies write it."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in kept]
    return {b: chr(b) for b in kept} | {b: chr(256 + i) for i, b in enumerate(rest)}


def words(pattern, text):
    found = regex.findall(pattern, text)
    assert "".join(found) == text, text
    return found


def train_bpe(count):
    parts = [tuple(bytes([b]) for b in w.encode()) for w in words(PATTERNS["Gpt2"], TEXT)]
    merges = []
    while len(merges) < count:
        pairs = {}
        for part in parts:
            for pair in zip(part, part[1:]):
                pairs[pair] = pairs.get(pair, 0) + 1
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        parts = [apply(part, best) for part in parts]
    return merges


def apply(part, pair):
    out, i = [], 0
    while i < len(part):
        if tuple(part[i:i + 2]) == pair:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(part[i])
            i += 1
    return tuple(out)


def encode_bpe(text, pattern, ranks, ids, whole_words):
    out = []
    for word in words(pattern, text):
        part = tuple(bytes([b]) for b in word.encode())
        if whole_words and word.encode() in ids:
            out.append(ids[word.encode()])
            continue
        while len(part) > 1:
            best = min(zip(part, part[1:]), key=lambda pair: ranks.get(pair, 1 << 30))
            if best not in ranks:
                break
            part = apply(part, best)
        out += [ids[p] for p in part]
    return out


def text_literal(text):
    data = text if isinstance(text, bytes) else text.encode()
    return '"' + "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in data) + '"sv'


def emit_list(kind, name, items):
    print(f"inline const std::vector<{kind}> {name}{{")
    line = ""
    for item in items:
        if len(line) + len(item) > 180:
            print(line)
            line = ""
        line += item + ","
    print(line + "};")


def emit_cases(name, pairs):
    emit_list("TokenizerCase", name, [f"{{{text_literal(t)},{{{','.join(map(str, ids))}}}}}" for t, ids in pairs])


generator = random.Random(7)
pool = list("abcdeht  \n\t0129'.,!\u00e9\u4e16\U0001f600") + ["the", " table", " cup", "'s", "\r\n"]
CASES += ["".join(generator.choice(pool) for _ in range(generator.randrange(4, 60))) for _ in range(40)]

model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(TEXT.split("\n")), model_writer=model, model_type="bpe", vocab_size=430, byte_fallback=True,
    normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True, minloglevel=2,
    split_digits=True, character_coverage=1.0)
spm = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
merges = train_bpe(170)
tokens = [bytes([b]) for b in range(256)] + sorted({a + b for a, b in merges}, key=lambda t: [a + b for a, b in merges].index(t))
tokens += [b" streets", b" weatherx"]  # whole words that no merge reaches: Llama 3 takes them, the others do not
CASES += ["streets and  streets weatherx", "in the streets"]
ids = {token: i for i, token in enumerate(tokens)}
ranks = {pair: i for i, pair in enumerate(merges)}
char = alphabet()


def written(token):
    return "".join(char[b] for b in token)


print("// Made by make_tokenizer_golden.py; do not edit.\n#pragma once\n\n#include <cstdint>\n#include <string_view>\n#include <vector>\n")
print("using namespace std::string_view_literals;\n")
print("// clang-format off")
print("struct TokenizerCase {\n    std::string_view text;\n    std::vector<std::int32_t> ids;\n};")
emit_list("std::string_view", "kSpmPieces", [text_literal(spm.id_to_piece(i)) for i in range(spm.get_piece_size())])
emit_list("float", "kSpmScores", [f"{spm.get_score(i):.1f}F" for i in range(spm.get_piece_size())])
emit_list("std::int32_t", "kSpmKinds",
          ["2" if spm.is_unknown(i) else "3" if spm.is_control(i) else "6" if spm.is_byte(i) else "1" for i in range(spm.get_piece_size())])
emit_cases("kSpmCases", [(t, spm.encode(t)) for t in CASES])
emit_list("std::string_view", "kBpePieces", [text_literal(written(t)) for t in tokens])
emit_list("std::string_view", "kBpeMerges", [text_literal(written(a) + " " + written(b)) for a, b in merges])
for name, pattern in PATTERNS.items():
    emit_cases(f"k{name}Cases", [(t, encode_bpe(t, pattern, ranks, ids, name == "Llama3")) for t in CASES])
print("// clang-format on")
