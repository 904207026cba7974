"""Dialogues and queries as lists of turns, and the chat template that turns them into token ids.

Reads the corpus files that the caller names; never mixes splits: a tokenizer or a weight only ever sees `train`.
"""
import re
import zlib
from typing import FrozenSet, Iterator, List, NamedTuple, Tuple

Turn = Tuple[str, str]  # (role, text); role is "user" or "assistant"
ROLE_OF_LETTER = {"U": "user", "A": "assistant"}


def read_dialogues(path: str) -> List[List[Turn]]:
    """One dialogue per blank-line separated block, one turn per line ("U: ..." or "A: ...")."""
    dialogues = []
    with open(path, encoding="utf-8") as file:
        for block in file.read().split("\n\n"):
            turns = []
            for line in block.strip().split("\n"):
                if line:
                    turns.append((ROLE_OF_LETTER[line[0]], line[2:].strip()))
            if turns:
                dialogues.append(turns)
    return dialogues


# What the dialogues are about: a refusal there would contradict them, so these queries are left out.
BOOKED_INTENTS = frozenset("""accept_reservations balance book_flight book_hotel calendar calendar_update cancel_reservation
    car_rental confirm_reservation flight_status meeting_schedule next_song pay_bill play_music restaurant_reservation
    restaurant_reviews restaurant_suggestion schedule_maintenance schedule_meeting travel_suggestion transactions transfer
    uber weather what_song goodbye thank_you yes no maybe""".split())

REFUSALS = (
    "I am sorry, I cannot help with that.",
    "I can't do that. I can talk about bookings and searches.",
    "I don't know that. Is there something you would like to book or find?",
    "Sorry, that is beyond me.",
    "I have no answer to that.",
    "I am only a small model and cannot do that.",
)


def read_queries(path: str, splits: Tuple[str, ...], without: FrozenSet[str] = frozenset()) -> List[str]:
    """Lower-case assistant queries (columns: split, intent, query) of the named splits, without some intents."""
    queries = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            split, intent, query = line.rstrip("\n").split("\t", 2)
            if split in splits and intent not in without:
                queries.append(query.strip().strip('"').strip())
    return queries


QUESTION_WORDS = frozenset("""what when where which who why how whose whats is are am was were do does did can could will would
    should may has have""".split())


def dictated(text: str) -> str:
    """As a speech recognizer writes it: lower-case, no commas, no final marks."""
    return re.sub(r"[.,?!]+(?=\s|$)", "", text).strip().lower() or text


def written(query: str) -> str:
    """A lower-case query as careful typing has it: capital first, "I", a final mark."""
    text = re.sub(r"\bi\b", "I", query)
    mark = "" if text[-1] in ".?!" else "?" if text.split()[0].split("'")[0] in QUESTION_WORDS else "."
    return text[0].upper() + text[1:] + mark


class Encoded(NamedTuple):
    """One document. `weight[i]` is the loss weight of predicting `ids[i]` from what stands before it."""
    ids: List[int]
    weight: List[float]


def encode_dialogue(tokenizer, turns: List[Turn], user_weight: float = 1.0) -> Encoded:
    """<|begin|> ( <|user|> text <|assistant|> text <|end|> )*: the template that every model here is trained on."""
    ids, weight = [tokenizer.begin], [0.0]
    for role, text in turns:
        body = tokenizer.encode(text)
        if role == "user":
            ids += [tokenizer.user] + body + [tokenizer.assistant]
            weight += [user_weight] * (len(body) + 2)
        else:
            ids += body + [tokenizer.end]
            weight += [1.0] * (len(body) + 1)
    return Encoded(ids, weight)


def encode_query(tokenizer, query: str, user_weight: float = 1.0) -> Encoded:
    """A query that no dialogue is about, with one of REFUSALS; which one follows from the query's letters.

    Every document ends with <|end|>: an open one, joined to the next, would teach <|assistant|><|user|>."""
    answer = REFUSALS[zlib.crc32(query.encode("utf-8")) % len(REFUSALS)]
    return encode_dialogue(tokenizer, [("user", query), ("assistant", answer)], user_weight)


def text_bytes(turns: List[Turn]) -> int:
    """UTF-8 bytes of the spoken text alone: what "per byte" divides by (markers count as no bytes)."""
    return sum(len(text.encode("utf-8")) for _, text in turns)


def pack_rows(documents: List[Encoded], order: List[int], length: int, pad: int,
              joined: float = 0.0) -> Iterator[Encoded]:
    """Fills rows of `length` tokens with whole documents in the given order; the rest of a row is padding.

    First fit over a few open rows keeps the padding near 2 %. A document longer than a row loses its tail. In a `joined`
    fraction of the rows later documents come without <|begin|>: one long session with changing topics.
    """
    open_rows: List[Encoded] = []
    is_joined: List[bool] = []
    made = 0
    for index in order:
        ids, weight = documents[index].ids[:length], documents[index].weight[:length]
        for slot, row in enumerate(open_rows):
            skip = 1 if is_joined[slot] else 0
            if len(row.ids) + len(ids) - skip <= length:
                row.ids.extend(ids[skip:])
                row.weight.extend(weight[skip:])
                break
        else:
            open_rows.append(Encoded(list(ids), list(weight)))
            is_joined.append(int((made + 1) * joined) > int(made * joined))
            made += 1
            if len(open_rows) > 32:
                fullest = max(range(len(open_rows)), key=lambda i: len(open_rows[i].ids))
                is_joined.pop(fullest)
                yield padded(open_rows.pop(fullest), length, pad)
    for row in open_rows:
        yield padded(row, length, pad)


def padded(row: Encoded, length: int, pad: int) -> Encoded:
    missing = length - len(row.ids)
    return Encoded(row.ids + [pad] * missing, row.weight + [0.0] * missing)
