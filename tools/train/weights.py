"""Trained weights on disk: a numpy archive with GGUF tensor names, matrices in float16, norms in float32.

This archive is the master: every shipped format is made from it, so a package can be rebuilt without training.
"""
import numpy
import torch

import model


def save(network: "model.Llama", path: str) -> None:
    arrays = {}
    for name, value in network.state_dict().items():
        array = value.detach().float().cpu().numpy()
        arrays[name] = array.astype(numpy.float16) if array.ndim == 2 else array
    numpy.savez(path, **arrays)


def load(path: str, shape: str, device: str, convert=None) -> "model.Llama":
    """The network in evaluation mode. `convert(array)` may replace each matrix, for instance by its quantized values."""
    network = model.Llama(model.SHAPES[shape])
    with numpy.load(path) as archive:
        state = {}
        for name in archive.files:
            array = archive[name].astype(numpy.float32)
            state[name] = torch.from_numpy(convert(array) if convert and array.ndim == 2 else array)
    network.load_state_dict(state)
    return network.to(device).eval()
