"""Trains the target: train_target.py CORPORA TOKENIZER.json OUT.npz [options]. Keeps the epoch with the least dev loss.

Everything random follows from --seed; the arithmetic of a GPU still makes two runs differ in the last digits.
"""
import argparse
import json
import time

import torch

import batches
import bpe
import model
import weights
from optimizer import Schedule


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora")
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    parser.add_argument("--shape", default="target")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--rows", type=int, default=32, help="rows of 1024 tokens per step")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=0.002)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--user-weight", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=0, help="stop after so many steps (smoke runs)")
    parser.add_argument("--documents", type=int, default=0, help="use only the first so many (smoke runs)")
    return parser.parse_args()


def one_epoch(network, schedule, documents, tokenizer, options, epoch: int, device: str) -> None:
    network.train()
    rows = batches.epoch_rows(documents, network.shape.context, tokenizer.pad, options.seed * 1000 + epoch, device)
    for ids, weight in batches.slices(rows, options.rows):
        if len(ids) < options.rows or (options.steps and schedule.done >= options.steps):
            break
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = batches.token_losses(network, ids, tokenizer.begin, torch.bfloat16)
        mark = weight[:, 1:]
        ((loss * mark).sum() / mark.sum()).backward()
        schedule.step()


def main() -> None:
    options = arguments_of()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    tokenizer = bpe.Tokenizer.load(options.tokenizer)
    documents = batches.training_documents(tokenizer, options.corpora, options.user_weight)
    documents = documents[:options.documents] if options.documents else documents
    network = model.Llama(model.SHAPES[options.shape], options.dropout).to(device)
    if options.compile:
        for block in network.blk:
            block.compile()
    context = network.shape.context
    dev, _ = batches.evaluation_rows(tokenizer, options.corpora, "dev", context, device, options.documents)
    steps_per_epoch = len(batches.epoch_rows(documents, context, tokenizer.pad, options.seed * 1000, "cpu")[0]) // options.rows
    schedule = Schedule(network, options.muon_lr, options.adam_lr, options.weight_decay,
                        options.epochs * steps_per_epoch, warmup=max(1, steps_per_epoch // 2))
    print(json.dumps(dict(vars(options), parameters=sum(p.numel() for p in network.parameters()),
                          steps_per_epoch=steps_per_epoch)), flush=True)
    best, start = float("inf"), time.time()
    for epoch in range(options.epochs):
        one_epoch(network, schedule, documents, tokenizer, options, epoch, device)
        loss = batches.held_out_loss(network, dev, tokenizer.begin, autocast=device == "cuda")
        print(json.dumps(dict(epoch=epoch + 1, steps=schedule.done, seconds=round(time.time() - start, 1),
                              dev={k: round(loss[k], 4) for k in ("all", "assistant", "user")})), flush=True)
        if loss["all"] < best:
            best = loss["all"]
            weights.save(network, options.out)
        if options.steps and schedule.done >= options.steps:
            break
    print(json.dumps(dict(best_dev=best, out=options.out)), flush=True)


if __name__ == "__main__":
    main()
