"""Groups merge where no path leads out of them and back."""

from __future__ import annotations

import random

import numpy as np

import tracer
from tests.support.arrays import array
from tracer import nn, optim, trace
from tracer.lowering.order import Order


class Piece:
    """A group of the simplest kind."""

    def __init__(self, number: int, producers: set[Piece]) -> None:
        self.number, self.producers, self.merged = number, producers, None

    def find(self) -> Piece:
        piece = self
        while piece.merged is not None:
            piece = piece.merged
        return piece


def reaches(start: Piece, end: Piece) -> bool:
    """Whether start depends on end through a third piece, by looking everywhere."""
    stack = [p.find() for p in start.producers if p.find() is not end]
    seen = set()
    while stack:
        piece = stack.pop()
        if piece is end:
            return True
        if piece not in seen and piece is not start:
            seen.add(piece)
            stack += [p.find() for p in piece.producers]
    return False


def test_groups_merge_exactly_where_nothing_lies_between_them() -> None:
    merged = refused = 0
    for seed in range(60):
        chance = random.Random(seed)
        order: Order[Piece] = Order()
        pieces: list[Piece] = []
        for number in range(40):
            piece = Piece(
                number, set(chance.sample(pieces, min(len(pieces), chance.choice((0, 1, 1, 2)))))
            )
            pieces.append(piece)
            order.append(piece)
            for _ in range(2):
                one, other = chance.choice(pieces).find(), chance.choice(pieces).find()
                if one is other:
                    continue
                between = order.between(one, other)
                assert (between is None) == (reaches(one, other) or reaches(other, one))
                if between is None:
                    refused += 1
                    continue
                order.merge(one, other, between)
                one.producers = {p.find() for p in one.producers | other.producers} - {one, other}
                other.merged = one
                merged += 1
                alive = {p.find() for p in pieces}
                for p in alive:
                    assert all(
                        order._place[q.find()] < order._place[p]
                        for q in p.producers
                        if q.find() is not p
                    )
    assert merged > 500 and refused > 100


def test_a_layer_whose_update_reads_what_its_forward_reads() -> None:
    # One kernel read the weight, which the first product reads too, another read the second product's gradient: merged, each
    # waited for the other and ordering the groups never ended.
    model = nn.Linear(2, 2)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    weight, bias = (np.array(p.detach()) for p in model.parameters())

    @trace
    def step(x):
        loss = tracer.sum(model(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    x = array(1, 2)
    np.testing.assert_allclose(step(x), (x @ weight.T + bias).sum(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        model.weight.detach(), weight - np.float32(0.1) * np.repeat(x, 2, 0), rtol=1e-5, atol=1e-6
    )
