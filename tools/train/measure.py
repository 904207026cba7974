"""Held-out numbers of a pair: measure.py CORPORA TOKENIZER.json TARGET.npz DRAFT.npz OUT.json [options].

Losses on the test split per weight format; acceptance of the draft under the shared-noise rule, per position; unselected
samples. All in float32; TF32 is off.
"""
import argparse
import json
import os

import torch

import batches
import bpe
import corpus
import quantize
import weights

FORMATS = ("f16", "q8_0", "q4_0")
KL_ROWS = 64  # of 1024 tokens
TEMPERATURES = {"greedy": 0.0, "temperature 0.8": 0.8}


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora")
    parser.add_argument("tokenizer")
    parser.add_argument("target")
    parser.add_argument("draft")
    parser.add_argument("out")
    parser.add_argument("--target-shape", default="target")
    parser.add_argument("--draft-shape", default="draft")
    parser.add_argument("--prompts", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64, help="longest answer")
    parser.add_argument("--dialogues", type=int, default=0, help="limit of the loss measurement (smoke runs)")
    parser.add_argument("--seed", type=int, default=3)
    return parser.parse_args()


@torch.no_grad()
def compared(reference, network, rows, begin: int) -> dict:
    """Mean and 99th percentile of KL(reference || network) in nats, and how often the most likely token is the same."""
    divergences, same = [], []
    for ids, weight in batches.slices(rows, 8):
        bias = batches.document_bias(ids, begin, torch.float32)
        p, q = reference(ids, bias)[:, :-1].log_softmax(-1), network(ids, bias)[:, :-1].log_softmax(-1)
        chosen = weight[:, 1:] > 0
        divergences.append((p.exp() * (p - q)).sum(-1)[chosen])
        same.append((p.argmax(-1) == q.argmax(-1))[chosen])
    divergence = torch.cat(divergences)
    return dict(kl_mean=float(divergence.mean()), kl_p99=float(divergence.kthvalue(int(len(divergence) * 0.99) + 1)[0]),
                same_top=float(torch.cat(same).float().mean()))


def losses(path, shape, tokenizer, options, device) -> dict:
    """Per format: nats per token, perplexity, bits per byte of text, and distance from the float16 master."""
    reference = weights.load(path, shape, device)
    rows, size = batches.evaluation_rows(tokenizer, options.corpora, "test", reference.shape.context, device, options.dialogues)
    result = {}
    for kind in FORMATS + ("q8_0+a8",):
        base = kind.split("+")[0]
        network = weights.load(path, shape, device, lambda array: quantize.rounded(array, base))
        if "+a8" in kind:  # weights are already on the grid, so imitating q8_0 again only adds the activations' rounding
            network.imitate("q8_0")
        loss = batches.held_out_loss(network, rows, tokenizer.begin)
        result[kind] = dict(loss, perplexity=float(torch.tensor(loss["all"]).exp()),
                            nats_per_byte=loss["nats"] / size, bits_per_byte=loss["nats"] / size / 0.6931471805599453,
                            **compared(reference, network, [part[:KL_ROWS] for part in rows], tokenizer.begin))
    return result


def prompts_of(tokenizer, options):
    """One prompt per test dialogue: all up to a user turn, the turn chosen by position so that early and late ones mix."""
    dialogues = corpus.read_dialogues(os.path.join(options.corpora, "sgd-test.txt"))
    step = max(1, len(dialogues) // options.prompts)
    prompts = []
    for number, turns in enumerate(dialogues[::step][:options.prompts]):
        users = (len(turns) + 1) // 2
        until = 2 * (number % users) + 1
        prompts.append(corpus.encode_dialogue(tokenizer, turns[:until]).ids)
    return prompts


@torch.no_grad()
def answers(target, draft, prompts, tokenizer, options, device):
    """Per temperature and prompt: the target's answer, and for each of its tokens whether the draft, given the text before
    it and the same noise, names the same token. Under the shared-noise rule this decides every cycle, at any depth.

    Prompts are padded on the left: rotary positions only count distances, and the bias hides the padding."""
    generator = torch.Generator(device=device).manual_seed(options.seed)
    results = {name: [] for name in TEMPERATURES}
    for first in range(0, len(prompts), 64):
        some = prompts[first:first + 64]
        longest = max(map(len, some))
        start = torch.tensor([[tokenizer.pad] * (longest - len(p)) + p for p in some], device=device)
        noise = -torch.empty(options.tokens, len(some), len(tokenizer), device=device).exponential_(generator=generator).log()
        for name, temperature in TEMPERATURES.items():
            answer = spoken(target, start, noise * temperature, tokenizer, device)
            whole = torch.cat([start, answer[:, :-1]], 1)
            logits = draft(whole, padded_bias(whole, tokenizer.pad))[:, longest - 1:]
            hits = (logits + temperature * noise[:answer.shape[1]].transpose(0, 1)).argmax(-1) == answer
            for ids, run in zip(answer.tolist(), hits.tolist()):
                size = ids.index(tokenizer.end) + 1 if tokenizer.end in ids else len(ids)
                results[name].append((ids[:size], run[:size]))
    return results


def padded_bias(ids, pad: int):
    """Causal, and blind to the padding on the left (a row of padding sees itself, so that softmax has something)."""
    time = ids.shape[1]
    seen = torch.ones(time, time, dtype=torch.bool, device=ids.device).tril() & (ids != pad)[:, None, :]
    seen = seen | torch.eye(time, dtype=torch.bool, device=ids.device)
    return torch.zeros(seen.shape, device=ids.device).masked_fill_(~seen, float("-inf")).unsqueeze(1)


def spoken(target, start, noise, tokenizer, device):
    """[batch, answer length]: argmax of logits plus noise[position], until every row has said <|end|>."""
    batch, longest = start.shape
    caches = target.new_caches(batch, longest + len(noise), torch.float32)
    logits = target(start, padded_bias(start, tokenizer.pad), caches, 0)[:, -1]
    hidden = torch.zeros(batch, 1, 1, longest + len(noise), device=device)
    hidden[:, 0, 0, :longest].masked_fill_(start == tokenizer.pad, float("-inf"))
    rows, done = [], torch.zeros(batch, dtype=torch.bool, device=device)
    for step in range(len(noise)):
        rows.append((logits + noise[step]).argmax(-1, keepdim=True))
        done |= rows[-1][:, 0] == tokenizer.end
        if done.all() or step + 1 == len(noise):
            break
        at = longest + step
        logits = target(rows[-1], hidden[..., :at + 1], caches, at)[:, -1]
    return torch.cat(rows, 1)


def acceptance(results, deepest: int = 8) -> dict:
    """Walks every answer in cycles of depth K = 1..8. position[k]: accepted / tried at draft position k+1."""
    report = {}
    for depth in range(1, deepest + 1):
        tried, taken, cycles, tokens = [0] * depth, [0] * depth, 0, 0
        for _, hits in results:
            at = 0
            while at < len(hits):
                run = 0
                while run < depth and at + run < len(hits):
                    tried[run] += 1
                    if not hits[at + run]:
                        break
                    taken[run] += 1
                    run += 1
                emitted = min(run + 1, len(hits) - at)
                cycles, tokens, at = cycles + 1, tokens + emitted, at + emitted
        report[str(depth)] = dict(position=[round(a / b, 4) if b else None for a, b in zip(taken, tried)],
                                  tokens_per_pass=round(tokens / cycles, 4))
    hits = [hit for _, run in results for hit in run]
    report["match"] = sum(hits) / len(hits)
    report["tokens"] = len(hits)
    return report


def main() -> None:
    options = arguments_of()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("highest")
    tokenizer = bpe.Tokenizer.load(options.tokenizer)
    report = dict(options=vars(options), target=losses(options.target, options.target_shape, tokenizer, options, device),
                  draft=losses(options.draft, options.draft_shape, tokenizer, options, device))
    shipped = [weights.load(path, shape, device, lambda array: quantize.rounded(array, "q8_0"))
               for path, shape in ((options.target, options.target_shape), (options.draft, options.draft_shape))]
    prompts = prompts_of(tokenizer, options)
    results = answers(*shipped, prompts, tokenizer, options, device)
    report.update(prompts=len(prompts), acceptance={name: acceptance(results[name]) for name in TEMPERATURES})
    report["samples"] = [dict(prompt=tokenizer.decode(prompt), **{name: tokenizer.decode(results[name][i][0]) for name in results})
                         for i, prompt in enumerate(prompts[:12])]
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
    print(json.dumps({k: report[k] for k in ("target", "draft", "acceptance")}, indent=1))


if __name__ == "__main__":
    main()
