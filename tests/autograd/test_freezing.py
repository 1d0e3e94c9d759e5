"""Frozen parameters: no gradients, no history, no memory for them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import tracer
import tracer.nn.functional as F
from tests.support.flags import Stack, array, stack
from tracer import Variable, nn, optim, trace
from tracer.tensors.tensor import Tensor


@pytest.fixture(autouse=True)
def seeded() -> None:
    tracer.manual_seed(0)


BATCH, WIDTH = 64, 32


FEATURES = BATCH * WIDTH * 4  # bytes of one layer's result


IMAGES, LABELS = array(BATCH, WIDTH), np.arange(BATCH) % 5


def memory_of(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Bytes of the memory that Tensors lie in, by the array that owns it."""
    found = {}
    for x in tensors:
        owner = x._data()
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        found[id(owner)] = owner.nbytes
    return found


def kept_by_history(result: Tensor, model: nn.Module) -> int:
    """Bytes that a result's history keeps alive, the parameters not counted: all that it refers to, however."""
    waiting: list[Any] = [result.grad_fn]
    seen: set[int] = set()
    tensors: list[Tensor] = []
    while waiting:
        item = waiting.pop()
        ours = type(item).__module__.startswith("tracer.")
        if id(item) in seen or not (ours or isinstance(item, tuple | list | dict | set)):
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            tensors.append(item)
        waiting += gc.get_referents(item)
    parameters = memory_of(model.parameters())
    return sum(size for owner, size in memory_of(tensors).items() if owner not in parameters)


def test_eager_history_of_a_frozen_base_is_its_last_result_whatever_its_depth() -> None:
    def kept(depth: int, frozen: bool, images: Any = IMAGES) -> int:
        model = stack(depth, frozen)
        return kept_by_history(F.cross_entropy(model(images), LABELS), model)

    shallow, deep = kept(2, frozen=True), kept(8, frozen=True)
    assert FEATURES <= shallow == deep < 2 * FEATURES
    assert kept(8, frozen=False) >= kept(2, frozen=False) + 6 * 2 * FEATURES
    assert kept(8, frozen=False, images=Variable(IMAGES, volatile=True)) == 0
    with tracer.no_grad():
        assert kept(8, frozen=False) == 0


def loss_of(model: Stack) -> Any:
    return trace(lambda x, y: F.cross_entropy(model(x), y))


def step_of(model: Stack) -> Any:
    optimizer = optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

    @trace
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def peak(call: Callable[[], Any]) -> int:
    """Bytes that a call needs of what programs share."""
    call()
    gc.collect()
    tracer.reset_peak_memory_stats()
    before = tracer.memory_allocated()
    result = call()
    assert tracer.memory_allocated() >= before
    del result
    return tracer.max_memory_reserved() - before


@pytest.mark.parametrize("function", [loss_of, step_of])
def test_compiled_programs_of_a_frozen_base_plan_and_use_memory_of_one_layer(function: Any) -> None:
    def measured(depth: int, frozen: bool) -> tuple[int, int]:
        call = function(stack(depth, frozen))
        plan = call.plan(IMAGES, LABELS)
        return plan.workspace + plan.residuals, peak(lambda: call(IMAGES, LABELS))

    (planned, used), (planned_deep, used_deep) = measured(4, True), measured(8, True)
    assert planned == planned_deep and used == used_deep  # as much as the deepest point needs
    for unfrozen, frozen in zip(measured(8, False), (planned_deep, used_deep), strict=True):
        assert unfrozen >= frozen + 4 * FEATURES
    assert used < planned + 4 * FEATURES  # results and rounding


def test_no_gradient_node_of_a_frozen_base_is_recorded() -> None:
    def gradients(graph: Any) -> set[str]:
        return {n.origin.scope for n in graph.nodes if n.origin.gradient}

    def below(scopes: set[str]) -> list[str]:
        return [s for s in scopes if "base" in s]

    for frozen in (True, False):
        model = stack(2, frozen)
        scopes = gradients(step_of(model).ir(IMAGES, LABELS))
        later = gradients(loss_of(model)(IMAGES, LABELS).grad_fn.graph)
        for found in (scopes, later):
            assert any("fc" in s for s in found)
            assert bool(below(found)) is not frozen


def test_a_frozen_layer_above_a_trained_one_keeps_what_the_gradient_passes_through() -> None:
    model = Stack(3)
    model.base[2].requires_grad_(False)
    model.fc.requires_grad_(False)
    F.cross_entropy(model(IMAGES), LABELS).backward()
    trained = {name for name, p in model.named_parameters() if p.grad is not None}
    assert trained == {n for n, _ in model.named_parameters() if n.startswith(("base.0", "base.1"))}


def test_a_frozen_base_that_was_trained_helps_a_new_head() -> None:
    """The example on a smaller network: digits 0 to 4 first, then only a head for 5 to 9."""
    from examples import finetune

    def network() -> finetune.ResidualNetwork:
        return finetune.ResidualNetwork(classes=5, width=64, depth=2)

    learnt = finetune.fine_tune(network(), 300, 150, "trained base")
    random = finetune.fine_tune(network(), 0, 150, "random base")
    assert learnt.base > 0.9
    assert learnt.head > random.head + 0.08, (learnt, random)
    assert learnt.trained[1] == 5 * 64 + 5 < learnt.trained[0] / 200
    assert learnt.memory[1] < learnt.memory[0] / 2
