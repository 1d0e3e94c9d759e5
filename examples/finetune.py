"""Train a network on some classes, freeze its base, replace its head, and train only that on classes it has never seen.

The network has the size and shape of resnet18 (11 million parameters, 512 features before `fc`), its layers are affine. The
data are scikit-learn's handwritten digits, each at a random place of a noisy image, so that pixels alone say little. The base
learns from the digits 0 to 4, the new head from 5 to 9; the same head on a random base shows what the base has learnt.

Run it as `python examples/finetune.py`: about two minutes on two cores.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import tracer
import tracer.nn.functional as F
from tracer import nn, optim, trace

SIDE = 12  # of an image; a digit has 8 x 8 pixels
BATCH = 64
HELD_OUT = 200  # digits of each half


class Block(nn.Module):
    """A residual block of two layers. The second starts at zero, so that a deep network starts as a shallow one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.first = nn.Linear(width, 4 * width)
        self.second = nn.Linear(4 * width, width)
        nn.init.zeros_(self.second.weight)

    def forward(self, x: tracer.Tensor) -> tracer.Tensor:
        """The same shape."""
        return x + self.second(F.relu(self.first(self.norm(x))))


class ResidualNetwork(nn.Module):
    """Pixels to scores of classes, `width` features before the classifier `fc`."""

    def __init__(self, classes: int, width: int = 512, depth: int = 5) -> None:
        super().__init__()
        self.stem = nn.Linear(SIDE * SIDE, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, classes)

    def forward(self, x: tracer.Tensor) -> tracer.Tensor:
        """(batch, pixels) to (batch, classes)."""
        return self.fc(self.norm(self.blocks(self.stem(x))))


@dataclass
class Half:
    """Five of the ten digits: images to train with and images held out, and their labels 0 to 4."""

    images: np.ndarray
    labels: np.ndarray

    def batch(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Some digits to train with, each at a random place."""
        chosen = rng.integers(0, len(self.images) - HELD_OUT, BATCH)
        return placed(self.images[chosen], rng), self.labels[chosen]

    def held_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Those held out, each at ten places, always the same."""
        chosen = np.tile(np.arange(len(self.images) - HELD_OUT, len(self.images)), 10)
        return placed(self.images[chosen], np.random.default_rng(1)), self.labels[chosen]


def halves() -> tuple[Half, Half]:
    """The digits 0 to 4, and 5 to 9."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = (digits.images[order] / 16).astype(np.float32)
    labels = digits.target[order].astype(np.int64)
    low = labels < 5
    return Half(images[low], labels[low]), Half(images[~low], labels[~low] - 5)


def placed(digits: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Digits somewhere in images with noise."""
    images = rng.normal(0, 0.1, (len(digits), SIDE, SIDE)).astype(np.float32)
    for image, digit, (row, column) in zip(
        images, digits, rng.integers(0, SIDE - 7, (len(digits), 2)), strict=True
    ):
        image[row : row + 8, column : column + 8] += digit
    return images.reshape(len(digits), -1)


@dataclass
class Outcome:
    """How well held-out digits are read by the whole network and by the new head; bytes that the step needs, and
    parameters that it trains, before and after the base was frozen."""

    base: float
    head: float
    memory: tuple[int, int]
    trained: tuple[int, int]


def fine_tune(model: ResidualNetwork, base_steps: int, head_steps: int, name: str) -> Outcome:
    """Train the network on the first half, and then a new head of it on the other."""
    first, second = halves()
    rng = np.random.default_rng(0)
    optimizer: optim.Optimizer = optim.Adam(model.parameters(), lr=1e-3)

    @trace
    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    @trace
    def scores(x):
        return model(x)

    def train(half: Half, steps: int, what: str) -> None:
        with tqdm(total=steps, unit="step", desc=f"{name}: {what}") as bar:
            for _ in range(steps):
                loss = step(*half.batch(rng))
                bar.update()
                if bar.n % 20 == 0:
                    bar.set_postfix(loss=f"{float(loss):.3f}")

    def accuracy(half: Half) -> float:
        x, y = half.held_out()
        quiet = tracer.Variable(x, volatile=True)  # nothing is kept for gradients
        return float(np.mean(np.asarray(scores(quiet)).argmax(axis=1) == y))

    def memory() -> int:
        return step.plan(*first.batch(rng)).workspace

    train(first, base_steps, "the whole network")
    before = memory(), trained_parameters(model)
    base = accuracy(first)

    for param in model.parameters():
        param.requires_grad = False
    # Replace the last layer. Parameters of newly constructed modules have requires_grad=True by default
    model.fc = nn.Linear(model.fc.in_features, 5)
    # Optimize only the classifier
    optimizer = optim.SGD(model.fc.parameters(), lr=1e-2, momentum=0.9)

    train(second, head_steps, "the head")  # the step notices, and is compiled again
    after = memory(), trained_parameters(model)
    return Outcome(base, accuracy(second), (before[0], after[0]), (before[1], after[1]))


def trained_parameters(model: nn.Module) -> int:
    """The number of elements that require gradients."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def main() -> None:
    """Fine-tune a base that has learnt and one that has not, and compare."""
    tracer.manual_seed(0)
    begin = time.perf_counter()
    model = ResidualNetwork(classes=5)
    learnt = fine_tune(model, base_steps=500, head_steps=300, name="trained base")
    random = fine_tune(ResidualNetwork(classes=5), base_steps=0, head_steps=300, name="random base")
    count = sum(p.numel() for p in model.parameters())
    print(f"\nparameters           {count:14,}")
    print(f"trained, then        {learnt.trained[0]:14,} {learnt.trained[1]:14,}")
    print(f"workspace of a step  {learnt.memory[0]:14,} {learnt.memory[1]:14,} bytes")
    print(f"digits 0 to 4        {learnt.base:14.1%} of held-out images read right")
    print(f"digits 5 to 9        {learnt.head:14.1%} with the trained base, frozen")
    print(f"                     {random.head:14.1%} with a random base, frozen")
    print(f"seconds              {time.perf_counter() - begin:14.1f}")
    assert learnt.head > random.head + 0.05, "the base has learnt nothing"


if __name__ == "__main__":
    main()
