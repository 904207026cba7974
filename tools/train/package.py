"""Builds a model package: package.py FOLDER TARGET.npz DRAFT.npz TOKENIZER.json --version V [--name N].

Writes both decoders as Q8_0 GGUF and manifest.json over every file of the folder (cards and measurements that stand there
already are listed too). The manifest is version 1 as daemon/model/manifest.hpp defines it.
"""
import argparse
import hashlib
import json
import os

import numpy

import bpe
import gguf

LICENCE = "CC-BY-SA-4.0"
DESCRIPTION = ("Small dialogue model for tests and demonstrations: speaks the manner of booking and search dialogues, knows "
               "nothing true. With a draft for speculative decoding.")


def decoder(path: str, name: str, master: str, shape: str, tokenizer: bpe.Tokenizer) -> None:
    with numpy.load(master) as archive:
        arrays = {key: archive[key].astype(numpy.float32) for key in archive.files}
    gguf.write(path, name, arrays, gguf.load_shape(shape), tokenizer, "q8_0")


def listed(folder: str) -> list:
    files = []
    for path in sorted(os.listdir(folder)):
        if path == "manifest.json":
            continue
        with open(os.path.join(folder, path), "rb") as file:
            data = file.read()
        files.append(dict(path=path, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data)))
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("target")
    parser.add_argument("draft")
    parser.add_argument("tokenizer")
    parser.add_argument("--name", default="dialogue-23m")
    parser.add_argument("--version", required=True)
    options = parser.parse_args()
    tokenizer = bpe.Tokenizer.load(options.tokenizer)
    model_file, draft_file = f"{options.name}.gguf", f"{options.name}-draft.gguf"
    os.makedirs(options.folder, exist_ok=True)
    decoder(os.path.join(options.folder, model_file), options.name, options.target, "target", tokenizer)
    decoder(os.path.join(options.folder, draft_file), f"{options.name}-draft", options.draft, "draft", tokenizer)
    manifest = dict(manifest=1, name=options.name, version=options.version, licence=LICENCE, description=DESCRIPTION,
                    files=listed(options.folder), inputs=[dict(name="prompt", kind="tokens", shape=[0])],
                    outputs=[dict(name="text", kind="tokens", shape=[0])], variants=[dict(device="cpu", file=model_file)],
                    prompt_template="<|user|>{prompt}<|assistant|>", draft=dict(file=draft_file),
                    tokenizer_sha256=tokenizer.digest())
    with open(os.path.join(options.folder, "manifest.json"), "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
