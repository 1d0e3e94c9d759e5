"""What fresh eyes found: each test is a mistake that once was."""

from __future__ import annotations

import contextlib
import functools
import gc
import pickle
import random
import threading
import time
import types
import unittest.mock
import weakref

import numpy as np
import pytest

import tracer
from ops.types import Type
from tracer import nn, optim, trace
from tracer.lowering.layout import Buffer
from tracer.lowering.memory_plan import _in_turn, _largest_first, plan_memory
from tracer.lowering.order import Order


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---- fusion --------------------------------------------------------------------------------------


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


# ---- memory --------------------------------------------------------------------------------------


def test_arrays_that_lie_otherwise_than_programs_read_them() -> None:
    double = trace(lambda x: x * 2.0)
    swapped = np.arange(4, dtype=">f4")
    for _ in range(2):
        np.testing.assert_array_equal(double(swapped), [0, 2, 4, 6])
    raw = np.zeros(17, np.uint8)
    odd = raw[1:].view(np.float32)
    odd[:] = [1, 2, 3, 4]
    np.testing.assert_array_equal(double(odd), [2, 4, 6, 8])


def test_the_address_of_a_transposed_tensor_is_not_taken_for_row_major() -> None:
    x = tracer.Tensor.of_array(array(2, 3).T)
    assert x.pointer
    scale = trace(lambda x: x * 1.5)
    for _ in range(2):
        np.testing.assert_array_equal(scale(x), x.array * np.float32(1.5))


def test_read_only_memory_is_never_written() -> None:
    content = bytes(64)
    frozen = np.frombuffer(content, np.float32)

    @trace
    def increase(x):
        x += 1.0

    for x in (frozen, tracer.Tensor.of_array(frozen)):
        with pytest.raises(
            tracer.ArgumentError, match="x is changed in place, and its array is read-only"
        ):
            increase(x)
    ordinary = np.zeros(16, np.float32)
    for _ in range(3):
        increase(ordinary)
    assert (ordinary == 3).all() and content == bytes(64)
    with pytest.raises(tracer.ArgumentError, match="read-only"):
        increase(frozen)


def test_what_is_changed_shares_no_memory_with_another_operand() -> None:
    @trace
    def add_to(x, y):
        x += y

    memory = np.ones((100, 2), np.float32)
    ones = np.ones(99, np.float32)
    row = np.ones(100, np.float32)
    for _ in range(2):  # the second time on the fast way
        with pytest.raises(
            tracer.ArgumentError, match="y shares memory with x, which the traced function changes"
        ):
            add_to(row[1:], row[:-1])
        add_to(row[1:], ones)
    assert row[0] == 1 and (row[1:] == 3).all()
    add_to(memory[:, 0], memory[:, 1])  # interleaved, but nothing in common
    assert (memory[:, 0] == 2).all() and (memory[:, 1] == 1).all()
    state = tracer.tensor(np.zeros(5, np.float32))

    @trace
    def accumulate(x):
        state.add_(x)

    x = tracer.tensor(np.ones(5, np.float32))
    for _ in range(3):
        accumulate(x)
        with pytest.raises(tracer.ArgumentError, match="x shares memory with state"):
            accumulate(state)
    np.testing.assert_array_equal(state, np.full(5, 3))


def test_the_fast_way_keeps_what_its_program_points_to() -> None:
    table = np.arange(1000, dtype=np.float32)

    @trace(max_traces=1)
    def shift(x):
        return x + tracer.tensor(table)

    x = np.zeros(1000, np.float32)
    shift(x)
    kept = weakref.ref(next(iter(shift._programs))[0].executable.lowering)
    shift(x=np.zeros(1000))  # drops the first program; a call by name leaves the fast way as it is
    gc.collect()
    assert kept() is not None
    np.testing.assert_array_equal(shift(x), table)


def test_a_pickled_tensor_keeps_its_shape() -> None:
    for x in (tracer.tensor(3.0), tracer.Tensor.of_array(array(2, 3).T)):
        again = pickle.loads(pickle.dumps(x))
        assert again.shape == x.shape
        np.testing.assert_array_equal(again, x)


def test_a_learning_rate_of_numpy_is_no_new_program() -> None:
    model = nn.Linear(2, 2)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @trace
    def step(x):
        optimizer.zero_grad()
        tracer.sum(model(x)).backward()
        optimizer.step()

    x = np.ones((1, 2), np.float32)
    step(x)
    before = np.array(model.bias.detach())
    for rate in np.linspace(0, 1, 5):
        optimizer.param_groups[0]["lr"] = rate
        step(x)
    assert step.timings().traces == 1
    np.testing.assert_allclose(model.bias.detach(), before - 2.5, rtol=1e-6)


def test_minus_zero_is_another_static_argument() -> None:
    sign = trace(static_argnames=("s",))(lambda x, s: tracer.divide(x, s))
    x = np.ones(1, np.float32)
    for _ in range(2):
        assert sign(x, 0.0).item() == np.inf
        assert sign(x, -0.0).item() == -np.inf


# ---- state of traced functions -------------------------------------------------------------------


def test_gradients_of_arguments_that_backward_gives_them_in_a_trace() -> None:
    @trace
    def accumulate(x):
        tracer.sum(x * x).backward()

    first, second = (
        tracer.tensor([1.0, 2.0], requires_grad=True),
        tracer.tensor([3.0, 4.0], requires_grad=True),
    )
    for k in range(1, 4):
        accumulate(first)
        np.testing.assert_array_equal(first.grad, [2 * k, 4 * k])
    accumulate(second)
    np.testing.assert_array_equal(second.grad, [6, 8])
    assert accumulate.timings().traces == 2  # with and without a gradient that is there

    @trace
    def renew(x):
        x.grad = None
        tracer.sum(x * x).backward()
        return x.grad

    for _ in range(3):
        np.testing.assert_array_equal(renew(first), [2, 4])
        np.testing.assert_array_equal(first.grad, [2, 4])
    assert renew.timings().traces == 1


def test_a_gradient_is_cleared_that_was_not_there_when_the_function_was_traced() -> None:
    weight = tracer.tensor([1.0, 2.0], requires_grad=True)

    @trace
    def clear(x):
        weight.grad = None
        return x * 2.0

    clear(np.ones(2, np.float32))
    for _ in range(2):
        tracer.sum(weight).backward()
        clear(np.ones(2, np.float32))
        assert weight.grad is None


def test_a_number_of_a_trace_that_is_over() -> None:
    kept = types.SimpleNamespace()

    @trace
    def leak(x, s):
        setattr(kept, "s", s)  # noqa: B010, a way that is not followed
        return x * s

    leak(np.ones(2, np.float32), 0.5)
    for use in (float, bool):
        with pytest.raises(tracer.TraceError):
            use(kept.s)


def test_a_float_argument_that_is_changed_in_place_is_another_number() -> None:
    @trace
    def halve(x, s):
        s *= 0.5
        return x * s, s

    for s in (3.0, 5.0):
        for _ in range(2):
            scaled, half = halve(np.ones(2, np.float32), s)
            np.testing.assert_array_equal(scaled, [s / 2, s / 2])
            assert float(half) == s / 2
    assert halve.timings().traces == 1


def test_errors_of_a_call_carry_the_line_of_the_call() -> None:
    take = trace(lambda x, k: tracer.take(x, k, axis=0))
    x = np.arange(3, dtype=np.float32)
    take(x, np.array([1]))
    for _ in range(2):
        with pytest.raises(
            tracer.BoundsError, match=r"an index is out of range.*(?s:.*)test_review\.py:\d+"
        ) as caught:
            take(x, np.array([7]))
        assert str(caught.value).count("test_review.py") == 1


def test_two_threads_trace_a_function_once() -> None:
    inside = threading.Barrier(2, timeout=60)

    @trace
    def slow(x):
        time.sleep(0.05)
        return x * 3.0

    def call() -> None:
        inside.wait()
        results.append(slow(np.ones(4, np.float32)))

    results: list[tracer.Tensor] = []
    threads = [threading.Thread(target=call) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 2 and all((r.array == 3).all() for r in results)
    assert slow.timings().traces == 1


# ---- memory of temporaries -----------------------------------------------------------------------


def lifetimes(chance: random.Random, count: int) -> list[tuple[Buffer, int, int]]:
    result = []
    for k in range(count):
        size = chance.choice((0, 16, 64, 100, 1000, 4000, 8192))
        first, last = chance.choice(((k, k + chance.randrange(4)), (k, 2 * count - k), (k // 2, k)))
        result.append(
            (Buffer(Type("float32", (size,)), "work"), min(first, last), max(first, last))
        )
    return result


def test_temporaries_that_live_at_once_lie_apart() -> None:
    chance = random.Random(0)
    for count in (1, 5, 40, 150):
        for plan in (_largest_first, _in_turn):
            lives = lifetimes(chance, count)
            total = plan(lives)
            for k, (buffer, first, last) in enumerate(lives):
                assert (
                    buffer.place >= 0
                    and buffer.place + buffer.nbytes <= total
                    and buffer.place % 64 == 0
                )
                for other, since, until in lives[:k]:
                    if since <= last and first <= until:
                        assert (
                            buffer.place + buffer.nbytes <= other.place
                            or other.place + other.nbytes <= buffer.place
                        )


def test_temporaries_of_many_kernels_are_placed_in_little_time_and_memory() -> None:
    chance = random.Random(1)
    few = lifetimes(chance, 400)
    assert _in_turn(few) <= 1.25 * _largest_first(few)
    many = lifetimes(chance, 30_000)
    start = time.perf_counter()
    plan_memory(many)
    assert time.perf_counter() - start < 10  # each compared with each took minutes


# ---- gradients -----------------------------------------------------------------------------------


def test_gradients_of_results_that_are_no_leaves() -> None:
    def f(x):
        y = x * 3.0
        y.retain_grad()
        tracer.sum(y * y).backward()
        return y.grad

    for function in (f, trace(f)):
        x = tracer.tensor([1.0, 2.0], requires_grad=True)
        np.testing.assert_array_equal(function(x), [6, 12])
        np.testing.assert_array_equal(x.grad, [18, 36])
    y = trace(lambda x: x * 3.0)(x)
    y.retain_grad()
    (y * y).sum().backward()
    np.testing.assert_array_equal(y.grad, [6, 12])
    with pytest.raises(tracer.GradError, match="requires no gradient"):
        tracer.tensor([1.0]).retain_grad()


def test_a_parameter_that_changes_between_a_compiled_call_and_its_backward() -> None:
    weight = tracer.tensor([1.0, 2.0], requires_grad=True)
    square = trace(lambda x: tracer.sum(weight * weight * x))
    late, early = square(np.ones(2, np.float32)), square(np.ones(2, np.float32))
    early.backward()
    np.testing.assert_array_equal(weight.grad, [2, 4])
    with tracer.no_grad():
        weight.add_(10.0)
    with pytest.raises(tracer.GradError, match="changed in place after the call"):
        late.backward()


def test_a_gradient_that_fails_in_a_trace_leaves_no_mark_on_what_follows() -> None:
    @trace
    def f(x):
        y = tracer.sum(x * 2.0)
        y.backward()
        with contextlib.suppress(tracer.GradError):
            y.backward()
        return x.detach() + 1.0

    x = tracer.tensor([1.0], requires_grad=True)
    assert not f.ir(x).nodes[-1].origin.gradient


def test_what_no_view_gives_is_never_its_operand() -> None:
    for function in (
        lambda x: tracer.roll(x, 0),
        lambda x: tracer.max(x, axis=()),
        lambda x: tracer.min(x, axis=()),
    ):
        for run in (function, trace(function)):
            x = tracer.tensor([1.0, 2.0])
            y = run(x)
            y += 1.0
            np.testing.assert_array_equal(x, [1, 2])


# ---- what decided a trace is noticed when it changes ---------------------------------------------

SCALE = 2.0
settings = types.ModuleType("settings")
settings.depth = 2


def scaled(x, power=1.0):
    return x * SCALE * power


class Plain:
    rate = 2.0

    def __init__(self) -> None:
        self.gain, self.options, self.calls = 3.0, {"mode": "double", "shift": [0.0, 1.0]}, 0

    @property
    def total(self):
        return self.gain * self.rate

    def helper(self, x):
        return x * self.total

    def __call__(self, x):
        y = self.helper(x) + self.options["shift"][1]
        return y * 2.0 if self.options["mode"] == "double" else y

    @trace
    def run(self, x):
        return self(x)


class Scaling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2))
        self.plain = Plain()

    def forward(self, x):
        return self.inner(x) * 0.0 + self.plain.gain * SCALE


def follows(function, x, *changes) -> int:
    """Whether a traced function gives what the plain one gives after each change; how often it was traced."""
    traced = function if hasattr(function, "timings") else trace(function)
    plain = traced._function
    for change in (lambda: None, *changes):
        change()
        for _ in range(2):
            np.testing.assert_allclose(np.asarray(traced(x)), np.asarray(plain(x)), rtol=1e-6)
    return traced.timings().traces


def test_values_that_helpers_read(monkeypatch) -> None:
    x = np.ones(2, np.float32)
    change = lambda name, value: lambda: monkeypatch.setitem(globals(), name, value)  # noqa: E731
    assert follows(lambda x: scaled(x), x, change("SCALE", 5.0)) == 2
    assert follows(lambda x: sum(scaled(v) for v in (x, x)), x, change("SCALE", 6.0)) == 2
    assert (
        follows(lambda x: scaled(x), x, lambda: monkeypatch.setattr(scaled, "__defaults__", (4.0,)))
        == 2
    )
    assert follows(functools.partial(scaled), x, change("SCALE", 7.0)) == 2
    assert follows(lambda x: scaled(x), x, change("scaled", lambda x: x - 1.0)) == 2


def test_values_in_modules_containers_and_objects(monkeypatch) -> None:
    x = np.ones(2, np.float32)
    plain = Plain()
    assert (
        follows(lambda x: x * settings.depth, x, lambda: monkeypatch.setattr(settings, "depth", 3))
        == 2
    )
    table = {"k": 2.0, "rest": (1.0, 2.0)}
    renew = (lambda: table.update(k=3.0), lambda: table.update(rest=(5.0, 7.0)))
    assert follows(lambda x: x * table["k"] + table["rest"][-1], x, *renew) == 3
    for run in (lambda x: plain(x), plain, plain.run, plain.helper):
        assert (
            follows(
                run,
                x,
                lambda: setattr(plain, "gain", plain.gain + 1.0),
                lambda: setattr(Plain, "rate", Plain.rate + 1.0),
            )
            == 3
        )
    assert (
        follows(
            plain.run,
            x,
            lambda: plain.options.update(mode="once"),
            lambda: plain.options.update(shift=[0.0, 9.0]),
        )
        >= 3
    )


def test_values_that_a_layer_reads(monkeypatch) -> None:
    model = Scaling()
    x = np.ones((1, 2), np.float32)
    with tracer.no_grad():
        change = (
            lambda: monkeypatch.setitem(globals(), "SCALE", 9.0),
            lambda: setattr(model.plain, "gain", 8.0),
            lambda: setattr(model, "plain", Plain()),
        )
        assert follows(lambda x: model(x), x, *change) == 3  # the last time as the second


def test_an_object_that_is_an_argument() -> None:
    @trace
    def f(x, options):
        return x * options.gain

    options = Plain()
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(f(x, options), [3, 3])
    options.gain = 4.0
    np.testing.assert_array_equal(f(x, options), [4, 4])


def test_what_code_does_not_read_is_no_reason_to_trace_again() -> None:
    plain = Plain()
    x = np.ones(2, np.float32)

    def count() -> None:
        plain.calls += 1
        plain.options["other"] = plain.calls

    assert follows(plain.run, x, count, count) == 1


def test_calls_of_several_kinds_in_turn_all_take_the_fast_way(monkeypatch) -> None:
    double = trace(lambda x: x * 2.0)
    batches = [np.ones(n, np.float32) for n in (3, 4, 5)]
    for x in batches:
        double(x)
    monkeypatch.setattr(double, "_find", None)
    for x in batches * 2:
        np.testing.assert_array_equal(double(x), 2 * x)


# ---- changes in place are noticed through every view ---------------------------------------------


def test_saved_operands_and_results_that_change_through_a_view() -> None:
    def through_base(x):
        weight = tracer.tensor([[1.0, 2.0]])
        y = x * weight.reshape(2)
        return y, lambda: weight.add_(1.0)

    def through_view(x):
        weight = tracer.tensor([1.0, 2.0])
        y = x * weight
        return y, lambda: weight.reshape(2, 1)[1:].mul_(2.0)

    def through_result(x):
        y = tracer.exp(x)
        return y, lambda: y.detach().add_(1.0)

    for case in (through_base, through_view, through_result):
        x = tracer.tensor([1.0, 2.0], requires_grad=True)
        y, change = case(x)
        y.sum().backward(retain_graph=True)
        change()
        with pytest.raises(tracer.GradError, match="was changed in place"):
            y.sum().backward()


def test_changes_that_no_gradient_needs_are_fine() -> None:
    x, weight = tracer.tensor([1.0, 2.0], requires_grad=True), tracer.tensor([3.0, 4.0])
    y = x + weight
    z = x * weight.clone()
    weight.reshape(2, 1).mul_(2.0)
    (y.sum() + z.sum()).backward()
    np.testing.assert_array_equal(x.grad, [4, 5])


def test_what_is_made_in_a_trace_is_made_at_each_call() -> None:
    @trace
    def accumulate(x):
        total = tracer.Tensor(np.zeros(2, np.float32))
        total.add_(x)
        return total, np.zeros(2)

    for _ in range(3):
        total, array_ = accumulate(np.ones(2, np.float32))
        np.testing.assert_array_equal(total, [1, 1])
        np.testing.assert_array_equal(array_, [0, 0])
        array_ += 1


def test_results_that_have_not_run_are_refused() -> None:
    @trace
    def each(x):
        yield x * 2.0

    with pytest.raises(tracer.TraceError, match="got a generator"):
        each(np.ones(2, np.float32))


def test_traced_methods_of_instances_with_slots() -> None:
    class Small:
        __slots__ = ("weight",)

        def __init__(self, value: float) -> None:
            self.weight = tracer.tensor(value)

        @trace
        def scale(self, x):
            return self.weight * x

    first, second = Small(2.0), Small(3.0)
    for _ in range(2):
        np.testing.assert_array_equal(first.scale(np.ones(2, np.float32)), [2, 2])
        np.testing.assert_array_equal(second.scale(np.ones(2, np.float32)), [3, 3])
    assert first.scale.timings().traces == 1


def test_views_of_what_changes_afterwards_show_the_change_in_a_trace() -> None:
    weight = tracer.tensor([1.0, 2.0], requires_grad=True)

    @trace
    def after(x):
        view = weight.detach().reshape(1, 2)
        with tracer.no_grad():
            weight.add_(x)
        return view

    np.testing.assert_array_equal(after(np.ones(2, np.float32)), [[2, 3]])
    np.testing.assert_array_equal(weight.detach(), [2, 3])
    with tracer.no_grad():
        weight.sub_(1)

    @trace
    def before(x):
        doubled = (
            weight.reshape(1, 2) * 2.0
        )  # read before the change; its gradient needs the old value
        with tracer.no_grad():
            weight.add_(x)
        (doubled * weight.detach()).sum().backward()
        return doubled.detach(), weight.detach().reshape(2, 1)

    doubled, column = before(np.ones(2, np.float32))
    np.testing.assert_array_equal(doubled, [[2, 4]])
    np.testing.assert_array_equal(column, [[2], [3]])
    np.testing.assert_array_equal(weight.grad, [4, 6])


def test_objects_that_answer_to_every_name() -> None:
    helper = unittest.mock.MagicMock()
    helper.scale = 2.0

    @trace
    def f(x):
        helper(x)
        return x * helper.scale

    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(f(x), [2, 2])
    helper.scale = 3.0
    np.testing.assert_array_equal(f(x), [3, 3])


def test_a_long_chain_of_indices_of_indices() -> None:
    @trace
    def follow(parents, start):
        for _ in range(20):
            start = tracer.take(parents, start, axis=0)
        return start

    parents = np.roll(np.arange(50), 1)
    wanted = np.arange(50)
    for _ in range(20):
        wanted = parents[wanted]
    np.testing.assert_array_equal(follow(parents, np.arange(50)), wanted)
    parents[7] = 99
    with pytest.raises(tracer.BoundsError, match="out of range for an axis of size 50"):
        follow(parents, np.arange(50))
