"""Distils the draft: distill_draft.py CORPORA TOKENIZER.json TARGET.npz OUT.npz [options].

The draft learns the target's next-token distributions, never the text itself, on two kinds of rows in turn: training
dialogues and sessions that the target speaks (temperature 0.8 and 1.0). The loss is KL plus total variation at temperature
0.8: total variation is what shared-noise acceptance is bounded by.
"""
import argparse
import json
import time

import torch

import batches
import bpe
import model
import sampling
import weights
from optimizer import Schedule

TEMPERATURE = 0.8


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora")
    parser.add_argument("tokenizer")
    parser.add_argument("target")
    parser.add_argument("out")
    parser.add_argument("--target-shape", default="target")
    parser.add_argument("--shape", default="draft")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--tokens", type=int, default=32768, help="per step")
    parser.add_argument("--pool", type=int, default=2048, help="self-play sessions per refresh")
    parser.add_argument("--refreshes", type=int, default=8, help="how often new sessions join the pool")
    parser.add_argument("--session", type=int, default=512, help="tokens per self-play session")
    parser.add_argument("--tv", type=float, default=1.0, help="weight of total variation beside KL")
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=0.003)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--user-weight", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--stop", type=int, default=0, help="end after so many of the scheduled steps")
    parser.add_argument("--start-from", help="go on from this draft instead of from random weights")
    parser.add_argument("--documents", type=int, default=0, help="use only the first so many (smoke runs)")
    return parser.parse_args()


def turn_weights(ids: torch.Tensor, tokenizer, user_weight: float) -> torch.Tensor:
    """Weight of predicting ids[:, 1:]: 1 in assistant turns, `user_weight` in user turns, 0 on padding and <|begin|>."""
    answered = (ids == tokenizer.assistant).cumsum(1) == (ids == tokenizer.user).cumsum(1)
    weight = torch.where(answered[:, :-1], 1.0, user_weight)
    following = ids[:, 1:]
    return weight * ((following != tokenizer.pad) & (following != tokenizer.begin))


def distance(draft_logits, target_logits):
    """Per position: KL(target || draft) in nats, and total variation, both at TEMPERATURE."""
    p = (target_logits.float() / TEMPERATURE).log_softmax(-1)
    q = (draft_logits.float() / TEMPERATURE).log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1), 0.5 * (p.exp() - q.exp()).abs().sum(-1)


def compared(draft, target, ids, bias, tokenizer, options, device):
    with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        with torch.no_grad():
            wanted = target(ids, bias)[:, :-1]
        got = draft(ids, bias)[:, :-1]
    divergence, variation = distance(got, wanted)
    weight = turn_weights(ids, tokenizer, options.user_weight)
    return (divergence * weight).sum() / weight.sum(), (variation * weight).sum() / weight.sum()


@torch.no_grad()
def on_dev(draft, target, dev, tokenizer, options, device) -> dict:
    draft.eval()
    sums = torch.zeros(2, device=device)
    for ids, _ in batches.slices(dev, 16):
        bias = batches.document_bias(ids, tokenizer.begin, target.token_embd.weight.dtype)
        sums += torch.stack(compared(draft, target, ids, bias, tokenizer, options, device)) * len(ids)
    draft.train()
    return dict(kl=float(sums[0]) / len(dev[0]), tv=float(sums[1]) / len(dev[0]))


class Rows:
    """Endless training rows: even steps from the corpus, odd steps from the pool of self-play sessions."""

    def __init__(self, target, documents, tokenizer, options, device):
        self.target, self.documents, self.tokenizer, self.options, self.device = target, documents, tokenizer, options, device
        self.dialogues = [document for document in documents if document.weight[-1] > 0 and len(document.ids) > 40]
        self.generator = torch.Generator(device=device).manual_seed(options.seed)
        self.pool, self.epoch, self.real, self.context = None, 0, iter(()), target.shape.context

    def refresh(self, number: int) -> None:
        """Even refreshes speak from nothing, odd ones go on after the first tokens of training dialogues."""
        length = min(self.options.session, self.context)
        if number % 2 == 0:
            fresh = sampling.sessions_from_nothing(self.target, self.tokenizer, self.options.pool, length,
                                                   1.0 if number % 4 == 2 else 0.8, self.generator)
        else:
            fresh = sampling.sessions_after(self.target, self.dialogues, self.options.pool, length, 0.8, self.generator)
        self.pool = fresh if self.pool is None else torch.cat([self.pool, fresh])

    def next(self, step: int):
        """Ids and attention bias."""
        if step % 2:
            count = self.options.tokens // self.pool.shape[1]
            chosen = torch.randint(len(self.pool), (count,), generator=self.generator, device=self.device)
            return self.pool[chosen], None  # one document per row
        rows = next(self.real, None)
        if rows is None:
            ids, _ = batches.epoch_rows(self.documents, self.context, self.tokenizer.pad,
                                        self.options.seed * 1000 + self.epoch, self.device)
            self.real, self.epoch = iter(ids.split(self.options.tokens // self.context)), self.epoch + 1
            rows = next(self.real)
        return rows, batches.document_bias(rows, self.tokenizer.begin, self.target.token_embd.weight.dtype)


def main() -> None:
    options = arguments_of()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    tokenizer = bpe.Tokenizer.load(options.tokenizer)
    documents = batches.training_documents(tokenizer, options.corpora, 1.0)
    documents = documents[:options.documents] if options.documents else documents
    target = weights.load(options.target, options.target_shape, device)
    target = target.bfloat16() if device == "cuda" else target
    draft = model.Llama(model.SHAPES[options.shape]).to(device)
    if options.start_from:
        draft = weights.load(options.start_from, options.shape, device)
    dev, _ = batches.evaluation_rows(tokenizer, options.corpora, "dev", target.shape.context, device, options.documents)
    schedule = Schedule(draft, options.muon_lr, options.adam_lr, options.weight_decay, options.steps, warmup=100)
    print(json.dumps(dict(vars(options), parameters=sum(p.numel() for p in draft.parameters()))), flush=True)
    rows, start, best = Rows(target, documents, tokenizer, options, device), time.time(), float("inf")
    refresh_every = max(1, options.steps // 2 // options.refreshes)
    for step in range(options.stop or options.steps):
        if step % refresh_every == 0 and step // refresh_every < options.refreshes:
            rows.refresh(step // refresh_every)
        divergence, variation = compared(draft, target, *rows.next(step), tokenizer, options, device)
        (divergence + options.tv * variation).backward()
        schedule.step()
        if (step + 1) % max(1, options.steps // 10) == 0:
            dev_distance = on_dev(draft, target, dev, tokenizer, options, device)
            print(json.dumps(dict(step=step + 1, seconds=round(time.time() - start, 1), kl=round(divergence.item(), 4),
                                  tv=round(variation.item(), 4), dev=dev_distance)), flush=True)
            if dev_distance["tv"] < best:
                best = dev_distance["tv"]
                weights.save(draft, options.out)


if __name__ == "__main__":
    main()
