#!/usr/bin/env python3
"""perceptd-generate on models that perceptd-model makes: the text does not depend on draft, depth, source or threads; what
does not fit or match is refused in words that say why."""
import json
import pathlib
import subprocess
import sys
import tempfile

MODEL_TOOL, GENERATE = sys.argv[1:3]
PROMPT = "what stands here stands here again"


def make(path, encoding, vocabulary=512):
    subprocess.run([MODEL_TOOL, "make", "--shape", "custom", "--width", "64", "--layers", "2", "--heads", "2", "--kv-heads", "1",
                    "--head-dim", "32", "--feed-forward", "128", "--vocabulary", str(vocabulary), "--context", "256",
                    "--type", encoding, "-o", path], check=True)


def generate(*arguments):
    return subprocess.run([GENERATE, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def answer(*arguments):
    done = generate(*arguments, "--tokens", "80", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(words, status, *arguments):
    done = generate("--tokens", "50", *arguments)
    assert done.returncode == status and all(word in done.stderr for word in words), (done.returncode, done.stderr)


def main():
    with tempfile.TemporaryDirectory() as folder:
        target, draft, other = (str(pathlib.Path(folder) / name) for name in ("target.gguf", "draft.gguf", "other.gguf"))
        make(target, "q8_0")
        make(draft, "q4_0")
        make(other, "q8_0", vocabulary=520)
        texts = set()
        for temperature in ("0", "0.8"):
            common = (target, PROMPT, "--temperature", temperature, "--seed", "7")
            plain = answer(*common, "--depth", "0")
            assert plain["drafted"] == 0
            for more in (("--depth", "4", "--draft", draft), ("--depth", "16", "--draft", draft), ("--draft", draft),
                         ("--source", "suffix"), ("--source", "lookup", "--depth", "5"), ("--source", "none"),
                         ("--depth", "3", "--draft", draft, "--workers", "2")):
                found = answer(*common, *more)
                assert found["text"] == plain["text"] and found["finish"] == plain["finish"], (more, found, plain)
            texts.add(plain["text"])
        assert len(texts) == 2, texts  # the temperature does something
        drafted = answer(target, PROMPT, "--depth", "4", "--draft", draft)
        assert drafted["accepted"] > 0 and drafted["context_capacity_tokens"] == 256, drafted
        assert generate(target, PROMPT, "--tokens", "5").stdout.endswith("\n")
        with open("/dev/full", "w") as full:
            lost = subprocess.run([GENERATE, target, PROMPT, "--tokens", "5"], stdout=full, stderr=subprocess.PIPE, text=True)
        assert lost.returncode == 1 and "could not be written" in lost.stderr, lost
        refused(["another vocabulary"], 1, target, PROMPT, "--draft", other)
        refused(["do not fit", "256"], 1, target, PROMPT + " x" * 200)
        refused(["temperature"], 1, target, PROMPT, "--temperature", "-1")
        refused(["{prompt}"], 1, target, PROMPT, "--template", "none")
        refused(["depth"], 2, target, PROMPT, "--depth", "17")
        refused(["seed", "whole number"], 2, target, PROMPT, "--seed", "-1")
        refused(["workers", "whole number"], 2, target, PROMPT, "--workers", "99999999999999999999")
        refused(["missing.gguf"], 1, pathlib.Path(folder) / "missing.gguf", PROMPT)
    print("generate text: ok")


main()
