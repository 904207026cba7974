"""Encoded splits as tensors: packed training rows per epoch, evaluation rows, and the loss over them."""
import os
import random
from typing import Iterator, List, Tuple

import torch
import torch.nn.functional as F

import corpus
from model import document_bias

USER_MARK = 0.5  # evaluation rows carry this weight on user tokens and 1 on assistant tokens, to tell them apart


def training_documents(tokenizer, folder: str, user_weight: float) -> List[corpus.Encoded]:
    """Every fourth dialogue has its user turns dictated, every second query is written: else lower case alone, which all
    queries have and hardly any dialogue has, would decide between refusing and booking."""
    dialogues = corpus.read_dialogues(os.path.join(folder, "sgd-train.txt"))
    dialogues[3::4] = [[(role, corpus.dictated(text) if role == "user" else text) for role, text in turns]
                       for turns in dialogues[3::4]]
    documents = [corpus.encode_dialogue(tokenizer, turns, user_weight) for turns in dialogues]
    queries = corpus.read_queries(os.path.join(folder, "clinc150.tsv"), ("train", "oos_train"),
                                  without=corpus.BOOKED_INTENTS)
    queries[1::2] = map(corpus.written, queries[1::2])
    return documents + [corpus.encode_query(tokenizer, query, user_weight) for query in queries]


def as_tensors(rows, device) -> Tuple[torch.Tensor, torch.Tensor]:
    rows = list(rows)
    return (torch.tensor([row.ids for row in rows], device=device),
            torch.tensor([row.weight for row in rows], device=device))


def epoch_rows(documents, length: int, pad: int, seed: int, device) -> Tuple[torch.Tensor, torch.Tensor]:
    """One pass over all documents in an order fixed by the seed; 30 % of the rows join their documents."""
    dice = random.Random(seed)
    order = list(range(len(documents)))
    dice.shuffle(order)
    rows = list(corpus.pack_rows(documents, order, length, pad, joined=0.3))
    dice.shuffle(rows)
    return as_tensors(rows, device)


def evaluation_rows(tokenizer, folder: str, split: str, length: int, device, limit: int = 0):
    dialogues = corpus.read_dialogues(os.path.join(folder, f"sgd-{split}.txt"))
    dialogues = dialogues[:limit] if limit else dialogues
    documents = [corpus.encode_dialogue(tokenizer, turns, USER_MARK) for turns in dialogues]
    rows = corpus.pack_rows(documents, list(range(len(documents))), length, tokenizer.pad)
    return as_tensors(rows, device), sum(corpus.text_bytes(turns) for turns in dialogues)


def slices(rows, size: int) -> Iterator[Tuple[torch.Tensor, torch.Tensor]]:
    ids, weight = rows
    for first in range(0, len(ids), size):
        yield ids[first:first + size], weight[first:first + size]


def token_losses(network, ids, begin: int, dtype=torch.float32) -> torch.Tensor:
    """Negative log-likelihood of ids[:, 1:], in nats."""
    logits = network(ids, document_bias(ids, begin, dtype))[:, :-1]
    return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)


@torch.no_grad()
def held_out_loss(network, rows, begin: int, size: int = 16, autocast: bool = False) -> dict:
    """Mean nats per token over all, assistant and user tokens of evaluation rows."""
    network.eval()
    total = {"all": 0.0, "assistant": 0.0, "user": 0.0}
    count = {"all": 0, "assistant": 0, "user": 0}
    for ids, weight in slices(rows, size):
        with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=autocast):
            loss = token_losses(network, ids, begin, torch.bfloat16 if autocast else torch.float32)
        mark = weight[:, 1:]
        for part, chosen in (("all", mark > 0), ("assistant", mark == 1), ("user", mark == USER_MARK)):
            total[part] += float(loss[chosen].double().sum())
            count[part] += int(chosen.sum())
    result = {part: total[part] / count[part] for part in total}
    result.update(tokens=count["all"], nats=total["all"])
    return result
