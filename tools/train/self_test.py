"""Tests of the trainer that need no GPU and no corpus. Standard library; what needs numpy is skipped without it."""
import hashlib
import json
import os
import random
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
PACKAGE = os.path.join(HERE, "..", "models", "dialogue-23m")

import bpe
import corpus

try:
    import numpy
except ImportError:
    numpy = None

TEXTS = ["the cat sat on the mat", "the other cat sat there", "it's 12:30, isn't it?"] * 3


def brute_force_merges(texts, count):
    """Counts all pairs anew for every merge."""
    words = [[len(bpe.SPECIALS) + b for b in word.encode()] for text in texts for word in bpe.splitter().findall(text)]
    merges = []
    for new in range(len(bpe.SPECIALS) + 256, len(bpe.SPECIALS) + 256 + count):
        pairs = [pair for word in words for pair in zip(word, word[1:])]
        best = min(set(pairs), key=lambda pair: (-pairs.count(pair), pair))
        merges.append(best)
        words = [bpe.merged(word, best, new) for word in words]
    return merges


class Tokenizer(unittest.TestCase):
    def test_merges_equal_brute_force(self):
        trained = bpe.train(TEXTS, len(bpe.SPECIALS) + 256 + 20)
        self.assertEqual(trained.merges, brute_force_merges(TEXTS, 20))

    def test_any_text_comes_back(self):
        tokenizer, dice = bpe.train(TEXTS, len(bpe.SPECIALS) + 256 + 20), random.Random(1)
        for _ in range(200):
            text = "".join(chr(dice.choice([dice.randrange(32, 127), dice.randrange(0xa0, 0xd7ff)])) for _ in range(30))
            self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)

    def test_written_specials_stay_text(self):
        tokenizer = bpe.train(TEXTS, len(bpe.SPECIALS) + 256)
        self.assertTrue(all(i >= len(bpe.SPECIALS) for i in tokenizer.encode("<|end|><|user|>")))


class Spelling(unittest.TestCase):
    def test_dictated(self):
        self.assertEqual(corpus.dictated("Yes, at 12:30 p.m. in St. Louis, CA?"), "yes at 12:30 p.m in st louis ca")
        self.assertEqual(corpus.dictated("..."), "...")

    def test_written(self):
        self.assertEqual(corpus.written("can i see what i owe"), "Can I see what I owe?")
        self.assertEqual(corpus.written("what's the time"), "What's the time?")
        self.assertEqual(corpus.written("tell me a joke"), "Tell me a joke.")
        self.assertEqual(corpus.written("i'm lost!"), "I'm lost!")


class Packing(unittest.TestCase):
    def test_every_document_is_closed(self):
        # An open query, joined to the next document, once taught the model to answer with <|user|>.
        tokenizer = bpe.train(TEXTS, len(bpe.SPECIALS) + 256)
        query = corpus.encode_query(tokenizer, "what is the time")
        dialogue = corpus.encode_dialogue(tokenizer, [("user", "hello"), ("assistant", "hi")])
        for document in (query, dialogue):
            self.assertEqual((document.ids[0], document.ids[-1]), (tokenizer.begin, tokenizer.end))
        row = next(corpus.pack_rows([query, dialogue], [0, 1], 256, tokenizer.pad, joined=1.0))
        self.assertEqual(row.ids.count(tokenizer.begin), 1)
        for first, second in zip(row.ids, row.ids[1:]):
            self.assertFalse(first == tokenizer.assistant and second == tokenizer.user)

    def test_every_document_once(self):
        dice = random.Random(2)
        documents = [corpus.Encoded([1] + [10 + i] * dice.randrange(1, 40), []) for i in range(300)]
        documents = [corpus.Encoded(d.ids, [0.0] + [1.0] * (len(d.ids) - 1)) for d in documents]
        for joined in (0.0, 0.5):
            rows = list(corpus.pack_rows(documents, list(range(300)), 64, 0, joined))
            self.assertTrue(all(len(row.ids) == 64 == len(row.weight) for row in rows))
            said = sorted(i for row in rows for i in row.ids if i >= 10)
            self.assertEqual(said, sorted(i for d in documents for i in d.ids if i >= 10))
            self.assertTrue(all((w == 0.0) == (i in (0, 1)) for row in rows for i, w in zip(row.ids, row.weight)))


class Package(unittest.TestCase):
    def test_manifest_tells_the_truth(self):
        with open(os.path.join(PACKAGE, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        self.assertEqual({f["path"] for f in manifest["files"]}, set(os.listdir(PACKAGE)) - {"manifest.json"})
        for entry in manifest["files"]:
            with open(os.path.join(PACKAGE, entry["path"]), "rb") as file:
                data = file.read()
            self.assertEqual((entry["size_bytes"], entry["sha256"]), (len(data), hashlib.sha256(data).hexdigest()))


@unittest.skipIf(numpy is None, "numpy is not installed")
class Formats(unittest.TestCase):
    def test_rounding_error_is_at_most_half_a_step(self):
        import quantize
        values = numpy.random.default_rng(3).normal(size=(64, 96)).astype(numpy.float32)
        values[0] = 0
        step = numpy.abs(values.reshape(-1, 32)).max(1)
        for kind, steps in (("q8_0", 127), ("q4_0", 8)):
            error = numpy.abs(quantize.rounded(values, kind) - values).reshape(-1, 32).max(1)
            # The 4-bit range is -8 .. 7: the extreme of the other sign may miss by a whole step.
            bound = (0.5 if kind == "q8_0" else 1.0) * step / steps
            self.assertTrue((error <= bound * 1.01 + step * 2e-3).all())

    def test_written_file_reads_back(self):
        import tempfile
        import gguf
        import quantize
        import verify
        dice, tokenizer = numpy.random.default_rng(4), bpe.train(TEXTS, len(bpe.SPECIALS) + 256 + 5)
        arrays = {"a.weight": dice.normal(size=(8, 64)).astype(numpy.float32), "n.weight": numpy.ones(64, numpy.float32)}
        for kind in ("f32", "f16", "q8_0", "q4_0"):
            with tempfile.NamedTemporaryFile() as file:
                gguf.write(file.name, "x", arrays, gguf.load_shape("tiny"), tokenizer, kind)
                read = verify.Reader(file.name)
            self.assertEqual(read.meta["tokenizer.ggml.tokens"][-1], tokenizer.written(len(tokenizer) - 1))
            self.assertTrue((read.tensor["a.weight"] == quantize.rounded(arrays["a.weight"], kind)).all())
            self.assertTrue((read.tensor["n.weight"] == 1).all())

    def test_shipped_model_says_what_was_measured(self):
        import verify
        file = verify.Reader(os.path.join(PACKAGE, "dialogue-23m.gguf"))
        vocabulary = verify.Vocabulary(file.meta)
        with open(os.path.join(PACKAGE, "measured.json"), encoding="utf-8") as measured:
            samples = json.load(measured)["samples"]
        for sample in samples[:2]:
            prompt, answer = marked_ids(vocabulary, sample["prompt"]), marked_ids(vocabulary, sample["greedy"])
            said = verify.logits_of(file, numpy.array(prompt + answer[:-1])).argmax(-1)
            self.assertEqual(said[len(prompt) - 1:].tolist(), answer)


def marked_ids(vocabulary, text):
    """Ids of a text whose markers are written out."""
    import re
    ids = []
    for part in re.split(r"(<\|[a-z]+\|>)", text):
        ids += [vocabulary.id_of[part]] if part in vocabulary.id_of and part.startswith("<|") else vocabulary.encode(part)
    return ids


if __name__ == "__main__":
    unittest.main()
