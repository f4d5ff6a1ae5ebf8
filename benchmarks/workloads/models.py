"""Four small models and their data: pictures, graphs, texts, clicks.

The data is made up from a seed. What is done to a sample before training is what loaders do:
pictures are shifted and flipped, edges are dropped, texts are cut, categories are hashed.
"""

# mypy: allow-subclassing-any

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset

__all__ = ["WORKLOADS", "Batches", "Samples", "Workload"]

CLASSES = 10
KEPT = 512
"""Samples of a data set; a loader makes others of them."""
CHANNELS = 3
DEGREE = 6
"""Edges of each node."""
VOCABULARY = 512
FIELDS = 8
"""Categorical features of a click, and as many numbers."""

Sample = tuple[tuple[Tensor, ...], Tensor]
"""What goes into the model, and the answer."""


class Workload(nn.Module):
    """A stem, blocks whose activations may be made anew in the backward pass, and a head.

    The stem's answer is a tuple; blocks replace its first value.
    """

    checkpointing = False

    def __init__(self, stem: nn.Module, blocks: list[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.stem, self.blocks, self.head = stem, nn.ModuleList(blocks), head

    def forward(self, *inputs: Tensor) -> Tensor:
        x, *rest = self.stem(*inputs)
        for block in self.blocks:
            if self.checkpointing:
                x = checkpoint(block, x, *rest, use_reentrant=False)
            else:
                x = block(x, *rest)
        answer: Tensor = self.head(x)
        return answer


# -- pictures -----------------------------------------------------------------------------------


class _ImageStem(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, width, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (F.relu(self.conv(x)),)


class _Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outside) for _ in range(2))
        self.short = nn.Conv2d(inside, outside, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(inner)) + self.short(x))


class _ImageHead(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.linear(x.mean((2, 3)))
        return answer


def _convnet(width: int, size: int) -> Workload:  # noqa: ARG001 - pictures of any size
    blocks: list[nn.Module] = [_Residual(width, width, 1), _Residual(width, 2 * width, 2)]
    return Workload(_ImageStem(width), blocks, _ImageHead(2 * width))


def _images(size: int, rng: torch.Generator) -> Callable[[int], Sample]:
    shape = (KEPT, CHANNELS, size, size)
    pictures = torch.randint(256, shape, dtype=torch.uint8, generator=rng)
    labels = torch.randint(CLASSES, (KEPT,), generator=rng)

    def sample(number: int) -> Sample:
        at = number % KEPT
        picture = torch.roll(pictures[at], (number % 5, number % 7), (1, 2))
        if number % 2:
            picture = picture.flip(2)
        return (picture.float().div_(255.0),), labels[at]

    return sample


# -- graphs -------------------------------------------------------------------------------------


class _GraphStem(nn.Module):
    """Puts the graphs of a batch beside each other, as one graph in pieces."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(FIELDS, width)

    def forward(self, nodes: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        first = torch.arange(len(nodes), device=nodes.device) * nodes.shape[1]
        return F.relu(self.linear(nodes)), (edges + first[:, None, None]).movedim(1, 0).flatten(1)


class _Messages(nn.Module):
    """Each node adds up what its neighbours say (Gilmer et al. 2017)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own, self.others = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        spoken = self.others(flat)[edges[0]]
        heard = torch.zeros_like(flat, dtype=spoken.dtype).index_add(0, edges[1], spoken)
        return x + F.relu(self.own(x) + heard.view_as(x) / DEGREE)


class _MeanHead(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.linear(x.mean(1))
        return answer


def _graphnet(width: int, size: int) -> Workload:  # noqa: ARG001 - graphs of any size
    return Workload(_GraphStem(width), [_Messages(width) for _ in range(3)], _MeanHead(width))


def _graphs(size: int, rng: torch.Generator) -> Callable[[int], Sample]:
    nodes = torch.randn(KEPT, size, FIELDS, generator=rng)
    edges = torch.randint(size, (KEPT, 2, size * DEGREE), generator=rng)
    labels = torch.randint(CLASSES, (KEPT,), generator=rng)

    def sample(number: int) -> Sample:
        at = number % KEPT
        kept = size * (DEGREE - 1)
        first = number % size
        return (nodes[at], edges[at, :, first : first + kept]), labels[at]

    return sample


# -- texts --------------------------------------------------------------------------------------


class _TextStem(nn.Module):
    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(size, width)

    def forward(self, tokens: Tensor) -> tuple[Tensor]:
        return (self.words(tokens) + self.places.weight[None],)


class _Attention(nn.Module):
    """A block of a decoder (Vaswani et al. 2017), norms first."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        answer: Tensor = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return answer


class _WordHead(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.linear(x).flatten(0, 1)
        return answer


def _transformer(width: int, size: int) -> Workload:
    blocks: list[nn.Module] = [_Attention(width) for _ in range(2)]
    return Workload(_TextStem(width, size), blocks, _WordHead(width))


def _texts(size: int, rng: torch.Generator) -> Callable[[int], Sample]:
    text = torch.randint(VOCABULARY, (KEPT * (size + 1),), generator=rng)

    def sample(number: int) -> Sample:
        first = (number * 7919) % (len(text) - size - 1)
        return (text[first : first + size],), text[first + 1 : first + size + 1]

    return sample


# -- clicks -------------------------------------------------------------------------------------


class _ClickStem(nn.Module):
    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, width) for _ in range(FIELDS))
        self.linear = nn.Linear(FIELDS, width)

    def forward(self, numbers: Tensor, categories: Tensor) -> tuple[Tensor]:
        columns = [table(categories[:, at]) for at, table in enumerate(self.tables)]
        known = torch.stack([self.linear(numbers), *columns], 1)
        # Each pair of features, as in DLRM (Naumov et al. 2019).
        return (torch.cat([known.flatten(1), (known @ known.transpose(1, 2)).flatten(1)], 1),)


class _Dense(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inside, outside)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.linear(x))


def _recommender(width: int, size: int) -> Workload:
    inside = (FIELDS + 1) * (width + FIELDS + 1)
    blocks: list[nn.Module] = [_Dense(inside, 128), _Dense(128, 64)]
    return Workload(_ClickStem(width, size), blocks, nn.Linear(64, CLASSES))


def _clicks(size: int, rng: torch.Generator) -> Callable[[int], Sample]:
    numbers = torch.rand(KEPT, FIELDS, generator=rng)
    categories = torch.randint(2**31, (KEPT, FIELDS), generator=rng)
    labels = torch.randint(CLASSES, (KEPT,), generator=rng)

    def sample(number: int) -> Sample:
        at = number % KEPT
        hashed = (categories[at] + number * 2_654_435_761) % size
        return (numbers[at].log1p(), hashed), labels[at]

    return sample


# -- what they share ----------------------------------------------------------------------------

Maker = tuple[
    Callable[[int, int], Workload], Callable[[int, torch.Generator], Callable[[int], Sample]]
]

WORKLOADS: Mapping[str, Maker] = {
    "convnet": (_convnet, _images),
    "graphnet": (_graphnet, _graphs),
    "transformer": (_transformer, _texts),
    "recommender": (_recommender, _clicks),
}
"""How the model is made from its width and the size of its data, and how the data is."""


class Samples(Dataset[Any]):
    """A data set without an end: each number is a sample."""

    def __init__(self, sample: Callable[[int], Sample]) -> None:
        self.sample = sample

    def __getitem__(self, number: int) -> Sample:
        return self.sample(number)


class Batches:
    """Numbers of the samples of each batch, without an end; each rank has others."""

    def __init__(self, size: int, rank: int) -> None:
        self.size, self.rank = size, rank

    def __iter__(self) -> Iterator[list[int]]:
        rng = torch.Generator().manual_seed(self.rank)
        while True:
            yield torch.randint(2**31, (self.size,), generator=rng).tolist()
