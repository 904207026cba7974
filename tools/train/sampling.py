"""Text drawn from a network: rows continued in step with a key/value cache."""
import torch


@torch.no_grad()
def continued(network, prefix: torch.Tensor, length: int, temperature: float, generator) -> torch.Tensor:
    """prefix [batch, n] -> [batch, length]; every row has the same length at all times, so no padding is needed."""
    caches = network.new_caches(len(prefix), length, network.token_embd.weight.dtype)
    rows, fresh, at = [prefix], prefix, 0
    while at + fresh.shape[1] < length:
        logits = network(fresh, None, caches, at)[:, -1].float()
        at += fresh.shape[1]
        noise = -torch.empty_like(logits).exponential_(generator=generator).log()
        fresh = (logits / temperature + noise).argmax(-1, keepdim=True)
        rows.append(fresh)
    return torch.cat(rows, dim=1)


def sessions_from_nothing(network, tokenizer, batch: int, length: int, temperature: float, generator) -> torch.Tensor:
    start = torch.tensor([[tokenizer.begin, tokenizer.user]], device=generator.device).expand(batch, 2)
    return continued(network, start, length, temperature, generator)


def sessions_after(network, documents, batch: int, length: int, temperature: float, generator) -> torch.Tensor:
    """Sessions that go on after the first tokens of documents; where they cut is drawn once for the whole batch."""
    cut = int(torch.randint(4, length // 2, (1,), generator=generator, device=generator.device))
    long_enough = [document.ids[:cut] for document in documents if len(document.ids) >= cut]
    chosen = torch.randint(len(long_enough), (batch,), generator=generator, device=generator.device).tolist()
    prefix = torch.tensor([long_enough[i] for i in chosen], device=generator.device)
    return continued(network, prefix, length, temperature, generator)
