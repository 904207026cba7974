"""Trains the 4096-entry tokenizer on the training splits: train_tokenizer.py CORPORA OUT.json [--check]."""
import argparse
import os

import bpe
import corpus


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora")
    parser.add_argument("out")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--check", action="store_true", help="compare ids with the tokenizers library on the dev split")
    arguments = parser.parse_args()
    texts = [text for turns in corpus.read_dialogues(os.path.join(arguments.corpora, "sgd-train.txt")) for _, text in turns]
    texts += corpus.read_queries(os.path.join(arguments.corpora, "clinc150.tsv"), ("train", "oos_train"))
    tokenizer = bpe.train(texts, arguments.size)
    tokenizer.save(arguments.out)
    dev = [text for turns in corpus.read_dialogues(os.path.join(arguments.corpora, "sgd-dev.txt")) for _, text in turns]
    tokens = sum(len(tokenizer.encode(text)) for text in dev)
    print(f"{len(tokenizer)} entries, {sum(len(text.encode()) for text in dev) / tokens:.3f} bytes per token on dev")
    for text in dev:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    if arguments.check:
        check(tokenizer, dev)


def check(tokenizer: bpe.Tokenizer, texts) -> None:
    """Independent encoder: same merges in the tokenizers library must give the same ids."""
    import tokenizers
    vocabulary = {tokenizer.written(i): i for i in range(len(tokenizer))}
    merges = [(tokenizer.written(left), tokenizer.written(right)) for left, right in tokenizer.merges]
    other = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    other.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    odd = ["caf\u00e9 \u0416\u0434\u0438 \u4f60\u597d  two  spaces\n\nline \u00b2\u00bd 3rd it's WE'LL \U0001f600!", " ", "\t x", ""]
    for text in list(texts) + odd:
        assert other.encode(text).ids == tokenizer.encode(text), text
    print(f"the tokenizers library gives the same ids on {len(texts) + len(odd)} texts")


if __name__ == "__main__":
    main()
