"""Muon for the matrices inside the blocks, AdamW for embedding, output and norms; one cosine schedule for both.

Muon: momentum, then the update is replaced by the nearest orthogonal matrix (Newton-Schulz iteration). Matrices of equal
shape are iterated as one batch.
"""
import math
from collections import defaultdict

import torch


def orthogonalized(update: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """update: [count, rows, columns]. Quintic iteration whose fixed band is around singular value 1."""
    x = update.bfloat16() if update.is_cuda else update.float()
    tall = x.shape[1] > x.shape[2]
    x = x.transpose(1, 2) if tall else x
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    for _ in range(steps):
        gram = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.transpose(1, 2) if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(parameters, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            by_shape = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.shape].append(parameter)
            for shape, parameters in by_shape.items():
                updates = []
                for parameter in parameters:
                    velocity = self.state[parameter].setdefault("velocity", torch.zeros_like(parameter))
                    velocity.lerp_(parameter.grad, 1 - group["momentum"])
                    updates.append(parameter.grad.lerp(velocity, group["momentum"]))
                scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for parameter, update in zip(parameters, orthogonalized(torch.stack(updates))):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(update.to(parameter.dtype), alpha=-scale)


class Schedule:
    """Steps both optimizers: linear warm-up, then cosine to `floor` of the peak over `total` steps."""

    def __init__(self, model, muon_lr: float, adam_lr: float, weight_decay: float, total: int, warmup: int, floor=0.02):
        inner = [p for name, p in model.named_parameters() if p.dim() == 2 and name.startswith("blk.")]
        tables = [p for name, p in model.named_parameters() if p.dim() == 2 and not name.startswith("blk.")]
        norms = [p for p in model.parameters() if p.dim() == 1]
        self.optimizers = [Muon(inner, muon_lr, weight_decay=weight_decay),
                           torch.optim.AdamW([dict(params=tables, weight_decay=weight_decay * muon_lr / adam_lr),
                                              dict(params=norms, weight_decay=0.0)], lr=adam_lr, betas=(0.9, 0.98))]
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["peak"] = group["lr"]
        self.model, self.total, self.warmup, self.floor, self.done = model, total, warmup, floor, 0

    def step(self) -> None:
        progress = min(1.0, max(0.0, (self.done - self.warmup) / max(1, self.total - self.warmup)))
        factor = self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * progress))
        factor *= min(1.0, (self.done + 1) / self.warmup)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.done += 1
