"""Data-dependent Python in traced functions: every path equals eager, and what is counted, bounded, reported and refused."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracer
import tracer.nn.functional as F
from ops.types import Type
from tracer import nn, optim, random, trace
from tracer.ir.graph import GraphBuilder
from tracer.tracing.arguments.signature import Call
from tracer.tracing.programs import stages
from tracer.tracing.programs.paths import SignaturePaths
from tracer.tracing.recording import concrete_values

# What is shown here lies above kernels. Compiled too: the training step, threads, random numbers, bad indices, borderline values.
pytestmark = pytest.mark.kernels("python")

ONES = np.ones(3, np.float32)
Function = Callable[..., Any]


def check(compiled: Any, eager: Any, tolerance: float = 0.0) -> None:
    """Equal in structure, types and elements; to the bit unless a tolerance is given."""
    if isinstance(eager, tuple | list):
        assert type(compiled) is type(eager) and len(compiled) == len(eager)
        for a, b in zip(compiled, eager, strict=True):
            check(a, b, tolerance)
    elif isinstance(eager, tracer.Tensor):
        assert compiled.type == eager.type
        a, b = compiled.detach().array, eager.detach().array
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    elif isinstance(eager, np.ndarray):
        np.testing.assert_allclose(compiled, eager, rtol=tolerance, atol=tolerance)
    else:
        assert type(compiled) is type(eager)
        np.testing.assert_equal(compiled, eager)


def only(function: Any) -> SignaturePaths:
    """The paths of a function that was called in one way."""
    (signature,) = function.paths()
    return signature


def counts(function: Any) -> tuple[int, int, int]:
    """Its (paths, re-runs, retraces)."""
    found = only(function)
    return len(found.paths), found.reruns, found.retraces


# ---- three questions, eight paths, a training loop -----------------------------------------------


class Model(nn.Module):
    """Running statistics, dropout, two heads; notes what it is told when it asks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.right = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 2)
        self.register_buffer("mean", tracer.zeros(6))
        self.register_buffer("turns", tracer.zeros((), "int64"))
        self.told: list[bool] = []

    def ask(self, question: Any) -> bool:
        answer = bool(question)
        self.told.append(answer)
        return answer

    def forward(self, x: Any) -> Any:
        h = self.first(x)
        self.mean = self.mean * 0.9 + h.detach().mean(0) * 0.1
        if self.ask(h.abs().max() > 2.0):
            h = h * 0.5
            self.turns = self.turns + 1
        h = F.dropout(h - self.mean, 0.5)
        return self.left(h) if self.ask(h.sum() > 0) else self.right(h)


def training() -> tuple[Model, Any, Function]:
    tracer.manual_seed(3)
    model = Model().double()
    optimizer = optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        loss = ((model(x) - y) ** 2).mean()
        if model.ask(loss > 1.0):
            loss = loss * 0.3
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


def everything(model: Model, optimizer: Any) -> list[Any]:
    """Parameters, buffers, gradients, optimiser state."""
    state = [*model.parameters(), model.mean, model.turns]
    state += [p.grad for p in model.parameters() if p.grad is not None]
    state += [v for slots in optimizer.state.values() for v in slots.values()]
    return [t.detach().array.copy() for t in state if isinstance(t, tracer.Tensor)]


def tried(told: list[tuple[bool, ...]]) -> tuple[int, int, int]:
    """(paths, re-runs, retraces) of calls with these outcomes, where the last path is tried first, known ones before a trace."""
    known: list[tuple[bool, ...]] = []
    reruns = retraces = 0
    for outcomes in told:
        agreed = 0
        while True:
            path = next((p for p in known if p[:agreed] == outcomes[:agreed]), None)
            retraces += path is None and bool(known)
            reruns += path is not None and agreed > 0
            if path is None or path == outcomes:
                known = [outcomes, *(p for p in known if p != outcomes)]
                break
            agreed = 1 + next(
                k for k, (a, b) in enumerate(zip(path, outcomes, strict=True)) if a != b
            )
    return len(known), reruns, retraces


@pytest.mark.kernels("compiled")
def test_eight_paths_of_a_training_step_equal_eager() -> None:
    draw = np.random.default_rng(0)
    calls = [
        (
            draw.standard_normal((5, 4)) * draw.choice([0.5, 2.0]),
            draw.standard_normal((5, 2)) * draw.choice([0.3, 1.5]),
        )
        for _ in range(200)
    ]
    found: list[list[Any]] = []
    told: list[list[bool]] = []
    for wrap in (lambda f: f, trace):
        model, optimizer, plain = training()
        step = wrap(plain)
        seen = []
        for x, y in calls:
            loss = step(x, y)
            drawn = random.get_state().tolist()
            seen.append((drawn, [loss.item(), everything(model, optimizer)]))
        found.append(seen)
        told.append(model.told)
    for (drawn, eager), (drawn_too, compiled) in zip(*found, strict=True):
        assert drawn == drawn_too
        check(compiled[1], eager[1], 1e-10)
        assert compiled[0] == pytest.approx(eager[0], rel=1e-10)
    outcomes = [tuple(told[0][k : k + 3]) for k in range(0, 600, 3)]
    assert len(set(outcomes)) == 8 and outcomes[100:] != sorted(outcomes[100:])
    assert counts(step) == tried(outcomes)
    paths = only(step).paths
    runs = {tuple(o.answer for o in p.outcomes): p.runs for p in paths}
    assert runs == {o: outcomes.count(o) for o in set(outcomes)} and sum(runs.values()) == 200
    assert step.timings().traces == 8 and len(told[1]) == 3 * 8  # Python ran eight times
    assert {o.line.partition(":")[0] for p in paths for o in p.outcomes} == {
        "tests/tracing/test_paths.py"
    }


# ---- what Python asks ----------------------------------------------------------------------------


def halve(x: Any) -> Any:
    turns = 0
    while x.sum() > 1.0:
        x, turns = x * 0.5, turns + 1
    return x, turns


def search(x: Any, wanted: Any) -> Any:
    for k in range(len(x)):
        if x[k] == wanted:
            break
    else:
        return -1
    return k


def collatz(n: Any) -> list[Any]:
    """Recursion on values."""
    if n == 1:
        return [n]
    return [n, *collatz(n // 2 if n % 2 == 0 else 3 * n + 1)]


def sizes(x: Any, n: Any) -> Any:
    k = int(n)
    return x[:n], tracer.zeros((k, 2)), tracer.arange(n), [x * 1.0 for _ in range(n)], "abcdef"[n]


def numbers(x: Any) -> Any:
    lowest, highest = x.min().item(), float(x.max())
    return x - lowest, highest, f"{x.sum():.3f}", int(x.max()), x.tolist(), bool(x[0])


def several(x: Any) -> Any:
    """What asks without a word for it."""
    first = sorted([x[0], x[1]], key=float), min(x[0], x[1]), max(x[1], x[2])
    return first, 2.0 in x, tracer.allclose(x, x[0]), [y for y in x if y > 0]


CALLS: list[tuple[str, Function, list[tuple[Any, ...]]]] = [
    ("while", halve, [(ONES * k,) for k in (0.1, 3, 7, 0.2, 7, 3)]),
    ("break", search, [(np.array([4, 5, 6]), np.array(k)) for k in (5, 4, 9, 6, 5)]),
    ("recursion", collatz, [(np.array(k),) for k in (6, 1, 7, 6)]),
    ("sizes", sizes, [(np.arange(5.0), np.array(k)) for k in (2, 0, 3, 2)]),
    (
        "numbers",
        numbers,
        [(np.array(v),) for v in ([0.25, -1.5], [-0.0, 7.75], [0.0, 7.75], [0.25, -1.5])],
    ),
    (
        "several",
        several,
        [(np.array(v),) for v in ([1.0, 2, 3], [3.0, 1, -1], [4.0, 4, 4], [1.0, 2, 3])],
    ),
]


@pytest.mark.parametrize(("function", "calls"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_every_path_equals_eager(function: Function, calls: list[tuple[Any, ...]]) -> None:
    compiled = trace(function)
    for arguments in calls:
        check(compiled(*map(tracer.tensor, arguments)), function(*map(tracer.tensor, arguments)))
    for arguments in calls:
        check(compiled(*map(tracer.tensor, arguments)), function(*map(tracer.tensor, arguments)))
    different = len({repr(function(*map(tracer.tensor, a))) for a in calls})
    assert compiled.timings().traces == len(only(compiled).paths) <= different
    assert only(compiled).runs == 2 * len(calls)


def test_a_nan_is_true_and_no_whole_number() -> None:
    f = trace(lambda x: int(x) if x else None)
    for value in (2.5, 0.0, -0.0, 3.0, -7.9):
        assert f(np.array(value)) == (int(value) if value else None)
    for bad in (np.nan, np.inf):
        for _ in range(2):
            with pytest.raises((ValueError, OverflowError), match="convert"):
                f(np.array(bad))
    assert f(np.array(2.25)) == 2


@pytest.mark.kernels("compiled")
def test_floats_are_compared_by_their_bits() -> None:
    f = trace(lambda x: str(x.item()))
    for value in (0.0, -0.0, np.nan, 1.0, np.nan):
        assert f(np.array(value)) == str(value)
    assert counts(f)[0] == 4


def test_more_than_one_element_raises_what_it_does_without_a_trace() -> None:
    asks: list[Function] = [bool, int, float, lambda t: t.item(), lambda t: "abc"[t]]
    for x in (np.ones(2, np.int64), np.ones(0, np.int64)):
        for ask in asks:
            with pytest.raises((ValueError, TypeError)) as eager:
                ask(tracer.tensor(x))
            with pytest.raises(eager.type) as traced:
                trace(ask)(x)
            assert str(eager.value) == str(traced.value)
    with pytest.raises(TypeError, match="only integer Tensors index"):
        trace(lambda x: "abc"[x])(np.array(1.0))


@pytest.mark.kernels("compiled")
def test_what_no_call_changes_is_no_guard() -> None:
    f = trace(lambda x: x * 2.0 if tracer.tensor([1.0, 2.0]).sum() > 2.0 else x)
    check(f(ONES), tracer.tensor(ONES * 2))
    assert only(f).paths[0].outcomes == () and only(f).paths[0].runs is None


def test_whole_arrays_are_refused_with_the_line() -> None:
    for use in (np.asarray, lambda x: x.detach().numpy(), lambda x: np.save("unused", x)):
        with pytest.raises(
            tracer.TraceError, match=r"elements of a traced Tensor(?s:.*)test_paths"
        ):
            trace(use)(ONES)
    with pytest.raises(tracer.TraceError, match=r"at most 1024 are asked for(?s:.*)test_paths"):
        trace(lambda x: x.tolist())(np.ones(1025, np.float32))


def test_a_float_argument_that_alone_decides_stays_static() -> None:
    @trace
    def f(x: Any, s: float) -> Any:
        if x.sum() > 0 and s > 0.5:
            return x * s
        return x - s

    for sign in (1, -1, 1):
        for s in (0.25, 0.75):
            check(
                f(ONES * sign, s),
                tracer.tensor(ONES * sign * s if sign > 0 < s - 0.5 else ONES * sign - s),
                1e-7,
            )
    assert sum(len(s.paths) for s in f.paths()) >= 3


def test_a_question_is_asked_once_and_loops_are_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    work = []
    compute = concrete_values.compute
    monkeypatch.setattr(concrete_values, "compute", lambda *a: work.append(1) or compute(*a))

    def count(x: Any) -> Any:
        turns = 0
        while x > 0 and bool(x > 0):
            x, turns = x - 1, turns + 1
        return turns

    f = trace(count)
    assert f(np.int32(300)) == 300
    (path,) = only(f).paths
    assert len(path.outcomes) == 601 and len(work) <= 6 * 300 + 10
    assert "True, 600 times\n" in str(path)


def test_values_that_were_dropped_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concrete_values, "MOST_BYTES", 100)

    def f(x: Any) -> Any:
        first = x * 2.0
        y = first
        for _ in range(5):
            if y.sum() > 40.0:
                break
            y = y + first
        return y, first.sum().item()

    check(trace(f)(ONES), f(tracer.tensor(ONES)))


# ---- state ---------------------------------------------------------------------------------------


def test_state_that_is_asked_is_noticed_when_it_changes() -> None:
    flag, scale = tracer.tensor(True), np.ones(())

    @trace
    def f(x: Any) -> Any:
        scaled = x * scale
        return scaled * 2.0 if flag else scaled

    np.testing.assert_array_equal(f(ONES), ONES * 2)
    flag.fill_(False)
    np.testing.assert_array_equal(f(ONES), ONES)
    flag.fill_(True)
    np.testing.assert_array_equal(f(ONES), ONES * 2)
    assert counts(f) == (2, 1, 1)


@pytest.mark.kernels("compiled")
def test_arguments_and_state_change_on_the_path_that_is_taken_only() -> None:
    total, calls = tracer.zeros(3), tracer.zeros((), "int64")

    @trace
    def f(x: Any) -> Any:
        calls.add_(1)
        x.mul_(2.0)
        if x.sum() > 0:
            total.add_(x)
            if total.sum() > 10:
                total.zero_()
        else:
            x.add_(1.0)
        return total * 1.0

    state = np.zeros(3, np.float32)
    for k, sign in enumerate([1, 1, -1, 1, -1, -1, 1, 1]):
        x = ONES * sign
        result = f(x)
        if sign > 0:
            state = state + 2 if state.sum() + 6 <= 10 else state * 0
        np.testing.assert_array_equal(x, ONES * (2 if sign > 0 else -1))
        np.testing.assert_array_equal(result, state)
        np.testing.assert_array_equal(total, state)
        assert calls.item() == k + 1
    assert counts(f)[0] == 3


def test_an_error_on_a_new_path_leaves_everything_as_it_was() -> None:
    total = tracer.zeros(3)

    @trace
    def f(x: Any) -> Any:
        total.add_(x)
        random.rand(2)
        if total.sum() > 5:
            raise ValueError("too much")
        return total * 1.0

    before = random.get_state().tolist()[1]
    f(ONES)
    for _ in range(2):
        with pytest.raises(ValueError, match="too much"):
            f(ONES * 2)
    np.testing.assert_array_equal(total, ONES)
    assert random.get_state().tolist()[1] == before + 2
    np.testing.assert_array_equal(f(ONES * 0.5), ONES * 1.5)
    assert len(only(f).paths) == 1


@pytest.mark.kernels("compiled")
def test_branches_on_random_numbers_see_the_bits_that_are_drawn() -> None:
    def f() -> Any:
        x = random.randn(3)
        if x.sum() > 0:
            x = x + random.rand(3)
        return x, int(random.randint(0, 3))

    results = []
    compiled = trace(f)
    for function in (f, compiled):
        random.manual_seed(5)
        results.append([function() for _ in range(12)])
        results[-1].append(random.get_state())
    check(results[1], results[0])
    assert len(only(compiled).paths) > 2


@pytest.mark.kernels("compiled")
def test_gradients_that_accumulate_are_clipped_where_they_are_large() -> None:
    def build() -> tuple[Any, Function]:
        weight = nn.Parameter(np.array([0.5, -0.25]))

        def step(x: Any) -> Any:
            (weight * x).sum().backward()
            norm = (weight.grad * weight.grad).sum()
            if norm > 9.0:
                weight.grad = weight.grad * 0.25
                return norm, True
            return norm, False

        return weight, step

    (one, eager), (two, step) = build(), build()
    compiled = trace(step)
    for _ in range(9):
        check(compiled(np.ones(2)), eager(np.ones(2)))
        check(two.grad, one.grad)
    one.grad = two.grad = None
    check(compiled(np.ones(2)), eager(np.ones(2)))
    assert len(only(compiled).paths) == 3


# ---- errors on the wrong path --------------------------------------------------------------------


@pytest.mark.kernels("compiled")
def test_an_index_that_is_bad_on_another_path_does_no_harm() -> None:
    def f(x: Any, k: Any) -> Any:
        if k < 3:
            x = x[k] * 2.0
            if x > 3.0:
                return x
        return x.sum()

    compiled = trace(f)
    x = np.array([1.0, 2.0, 3.0])
    for k in (0, 2, 1_000_000_000_000, 1, 7, 2, -1_000_000_000_000):
        if k < -3:
            with pytest.raises(tracer.BoundsError, match=r"out of range(?s:.*)test_paths\.py"):
                compiled(x, np.array(k))
        else:
            check(compiled(x, np.array(k)), f(tracer.tensor(x), tracer.tensor(k)))
    assert len(only(compiled).paths) == 3


@pytest.mark.kernels("compiled")
def test_a_bad_index_before_or_after_the_questions() -> None:
    @trace
    def f(x: Any, i: Any, j: Any) -> Any:
        if x[i] > 0:
            return x[j]
        return x[i]

    x = np.array([1.0, -1.0])
    assert f(x, np.array(0), np.array(1)).item() == -1.0
    with pytest.raises(tracer.BoundsError):
        f(x, np.array(2), np.array(0))
    with pytest.raises(tracer.BoundsError):
        f(x, np.array(0), np.array(5))
    assert f(x, np.array(1), np.array(5)).item() == -1.0


def test_an_error_of_a_question_is_not_caught_inside() -> None:
    @trace
    def f(x: Any, k: Any) -> Any:
        try:
            if x[k] > 0:
                return x
        except IndexError:
            pass
        return x * 0.0

    with pytest.raises(tracer.BoundsError, match=r"out of range(?s:.*)test_paths\.py"):
        f(ONES, np.array(3))
    np.testing.assert_array_equal(f(ONES, np.array(2)), ONES)


@pytest.mark.kernels("compiled")
def test_borderline_values_are_decided_by_the_program_once() -> None:
    """Where a program computes another bit than the operators' references, its outcome is imposed."""
    x = np.linspace(-3, 3, 4001).astype(np.float32)
    compiled, eager = (np.asarray(f(x)) for f in (trace(tracer.exp), tracer.exp))
    (places,) = np.nonzero(compiled > eager)
    assert places.size, "both compute the same bits: nothing to test"
    k = int(places[0])
    limit = tracer.tensor(compiled[k])

    @trace
    def f(x: Any) -> Any:
        y = tracer.exp(x)
        return (y, "reached") if (y >= limit).any() else (y, "below")

    for _ in range(3):
        y, word = f(x[k : k + 1])
        assert word == ("reached" if np.asarray(y)[0] >= compiled[k] else "below")
    assert counts(f) == (2, 0, 1)


@pytest.mark.parametrize(
    "test",
    [
        test_arguments_and_state_change_on_the_path_that_is_taken_only,
        test_branches_on_random_numbers_see_the_bits_that_are_drawn,
        test_gradients_that_accumulate_are_clipped_where_they_are_large,
        test_an_index_that_is_bad_on_another_path_does_no_harm,
        test_a_bad_index_before_or_after_the_questions,
    ],
)
@pytest.mark.kernels("compiled")
def test_each_question_in_a_stage_of_its_own(
    test: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "WORTH_A_STAGE", 1)
    test()


def test_work_that_only_later_questions_need_is_not_done_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stages, "WORTH_A_STAGE", 1 << 15)

    @trace
    def f(x: Any, n: Any) -> Any:
        turns = 0
        while turns < 6 and x[0, 0] < n:
            x, turns = x @ x / 64, turns + 1
        return x, turns

    x = np.ones((64, 64), np.float32)
    sizes = []
    for n in (2.0, 0.5, 2.0):
        assert f(x, np.float32(n))[1] == (6 if n > 1 else 0)
        programs = f._find(Call((x, np.float32(n)), {}))[0].executable.early
        sizes.append([len(p.executable.graph.nodes) for p in programs])
    assert len(sizes[1]) == 1 and sizes[0] == sizes[2]
    assert 3 <= len(sizes[0]) <= 7 and max(sizes[0]) <= 12
    # what the first question needs is no product of matrices
    assert "library" not in {part.kind for part in programs[0].executable.plan().parts}


def test_stages_are_few_however_much_there_is_to_do() -> None:
    builder = GraphBuilder()
    x = builder.input(Type("float32", (4000, 500)))
    guards = []
    for _ in range(500):
        x = builder.Mul(x, x)
        guards.append(builder.ReduceAny(builder.Cast(x, to="bool"), axes=(0, 1), keepdims=False))
    graph = builder.build([x, *guards])
    *early, late = stages.cut(graph, range(1, 501), ())
    assert 8 <= len(early) <= stages.MOST_STAGES + 1 and not late.results
    assert [k for stage in early for k in stage.guards] == list(range(500))
    assert sum(len(stage.graph.nodes) for stage in early) == 1500  # nothing is computed twice
    assert early[-1].results == [0]


# ---- limits and warnings -------------------------------------------------------------------------


def test_the_least_recently_used_paths_are_dropped() -> None:
    f = trace(lambda x: search(x, 0), max_paths=2, name="find")
    row = np.eye(3, dtype=np.int64)
    assert f(1 - row[0]) == 0
    assert f(1 - row[1]) == 1
    assert f(1 - row[0]) == 0
    told = r"find has more than 2 paths.*bool\(t\) at tests/tracing/test_paths\.py:\d+ was False"
    with pytest.warns(RuntimeWarning, match=told) as seen:
        assert f(1 - row[2]) == 2
    assert seen[0].filename == __file__
    assert [len(p.outcomes) for p in only(f).paths] == [3, 1]  # the second path is gone
    assert f(1 - row[1]) == 1  # and comes again without a warning
    assert counts(f)[0] == 2 and f.timings().traces == 4
    with pytest.raises(tracer.ArgumentError, match="max_paths must be at least 1"):
        trace(lambda x: x, max_paths=0)


@pytest.mark.kernels("compiled")
def test_a_number_that_differs_at_each_call_gives_a_warning_once() -> None:
    @trace
    def f(x: Any) -> Any:
        loss = (x * x).sum()
        print(f"loss {loss:.3f}")
        return loss

    told = r"t\.item\(\) at tests/tracing/test_paths\.py:\d+ had 8 different answers.*return the Tensor"
    with pytest.warns(RuntimeWarning, match=told):
        for k in range(8):
            f(ONES * k)
    f(ONES * 20)
    assert len(only(f).paths) == 9


def test_paths_do_not_count_as_traces_of_other_arguments() -> None:
    f = trace(halve, max_traces=3)
    for k in (1, 3, 7, 30):
        f(ONES * k)
    assert len(only(f).paths) == 4 and len(f.signatures()) == 1
    f(np.ones(2, np.float32))
    assert [len(s.paths) for s in f.paths()] == [4, 1]


def test_the_report_reads_well() -> None:
    @trace(name="clip")
    def f(x: Any) -> Any:
        return x * 2.0 if x.sum() > 0 else x

    for k in (1, 1, -1, 1, 1):
        f(ONES * k)
    lines = str(f.paths()).split("\n")
    assert lines[:2] == ["clip: 1 signature", "(float32[3]): 2 paths, 1 re-run, 1 retrace"]
    assert lines[2] == "  path 1: 4 runs"
    assert lines[3].startswith("    tests/tracing/test_paths.py:") and lines[3].endswith(
        "  bool(t) -> True"
    )
    assert (f.paths().reruns, f.paths().retraces, only(f).runs) == (1, 1, 5)
    f.clear()
    assert len(f.paths()) == 0


@pytest.mark.kernels("compiled")
def test_looking_inside_shows_the_path_of_the_arguments_and_changes_nothing() -> None:
    total = tracer.zeros(3)

    @trace
    def f(x: Any) -> Any:
        total.add_(x)
        return tracer.exp(x) if x.sum() > 0 else tracer.tanh(x)

    assert "Exp(" in str(f.ir(ONES)) and "Tanh" not in str(f.ir(ONES))
    assert "Tanh(" in str(f.ir(-ONES)) and "Exp(" not in str(f.ir(-ONES))
    assert "exp" in str(f.kernels(ONES)) and f.plan(-ONES).kernels >= 2
    assert "Exp" in f.plan(ONES).nodes and "Tanh" in f.plan(-ONES).nodes
    np.testing.assert_array_equal(total, 0 * ONES)
    assert counts(f) == (2, 0, 1) and only(f).runs == 0


def test_what_decides_outside_of_arguments_and_state() -> None:
    """A function that asks other questions when it is traced again is traced as it is then."""
    traced = SimpleNamespace(turns=0)  # changed where nobody sees it

    @trace
    def f(x: Any) -> Any:
        vars(traced)["turns"] += 1
        if vars(traced)["turns"] % 2:
            return x * x.sum().item()
        return x * x.max().item() * 3.0

    for k in (1, 2, 1, 3):
        check(f(ONES * k), tracer.tensor(ONES * k * k * 3))
    assert f.timings().traces == 4


# ---- threads, copies, methods --------------------------------------------------------------------


@pytest.mark.kernels("compiled")
def test_threads_take_their_paths() -> None:
    f = trace(halve)
    wrong: list[int] = []

    def work(seed: int) -> None:
        values = np.random.default_rng(seed).integers(1, 40, 30)
        for value in values:
            x = ONES * value
            result, turns = f(x)
            expected, wanted = halve(tracer.tensor(x))
            if turns != wanted or not np.array_equal(result, expected):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(only(f).paths) == f.timings().traces <= 7  # each path was traced once


class Gate(nn.Module):
    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    @trace
    def forward(self, x: Any) -> Any:
        return x * 2.0 if x.sum() > self.limit else x


def test_methods_of_instances_and_pickles() -> None:
    low, high = Gate(0.0), Gate(100.0)
    np.testing.assert_array_equal(low(ONES), ONES * 2)
    np.testing.assert_array_equal(high(ONES), ONES)
    low.limit = 5.0
    np.testing.assert_array_equal(low(ONES), ONES)
    again = pickle.loads(pickle.dumps(trace(search, max_paths=3)))
    assert again(np.array([1, 2]), np.array(2)) == 1 and again._programs.max_paths == 3


# ---- gradients -----------------------------------------------------------------------------------


def bend(x: Any) -> Any:
    """Another function on each side of 0, in a loop whose turns depend on x."""
    y = (x * x).sum()
    while y > 2.0:
        y = y * 0.5
    return y * 3.0 if x[0] > 0 else tracer.sin(y)


def test_gradients_through_paths() -> None:
    points = [np.array(v) for v in ([1.0, 0.5], [-1.0, 2.0], [2.0, 2.0], [-0.5, 0.25])]
    transforms: list[Function] = [
        tracer.value_and_grad,
        tracer.jacobian,
        tracer.hessian,
        lambda f: lambda x: (lambda value, pull: (value, pull(2.0)[0]))(*tracer.vjp(f, x)),
    ]
    for transform in transforms:
        inside, outside = trace(transform(bend)), transform(trace(bend))
        for x in (*points, points[0]):
            wanted = transform(bend)(x)
            check(inside(x), wanted, 1e-12)
            if transform is tracer.value_and_grad:
                check(outside(x), wanted, 1e-12)
        assert len(only(inside).paths) == 4


def test_results_keep_their_history_on_every_path() -> None:
    f = trace(bend)
    for v in ([1.0, 0.5], [-1.0, 2.0], [1.0, 0.5]):
        grads = []
        for function in (bend, f):
            x = tracer.tensor(np.array(v), requires_grad=True)
            (function(x) * 2.0).backward()
            grads.append(x.grad)
        check(grads[1], grads[0], 1e-12)
    assert counts(f) == (2, 1, 1)


class Kept(tracer.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * x, x

    @staticmethod
    def backward(ctx, g, h):
        return g + h


def test_what_a_question_needed_is_kept_for_gradients_as_it_is() -> None:
    def f(w: Any) -> Any:
        y = w.tanh()
        if y.sum() > 0:
            y = y * 1
        square, same = Kept.apply(y)
        return square * same

    compiled = trace(f)
    for sign in (1, -1, 1):
        x = np.arange(4, dtype=np.float32) * sign
        grads = []
        for function in (f, compiled):
            w = tracer.tensor(x, requires_grad=True)
            function(w).sum().backward()
            grads.append(w.grad)
        check(*grads)


def test_nested_traced_functions_ask_in_the_outer_trace() -> None:
    inner = trace(halve)

    @trace
    def outer(x: Any) -> Any:
        y, turns = inner(x)
        return y * float(turns) if y[0] > 0.3 else y

    for k in (1, 7, 1):
        y, turns = halve(tracer.tensor(ONES * k))
        check(outer(ONES * k), y * float(turns) if y[0] > 0.3 else y)
    assert len(only(outer).paths) == 2 and len(inner.paths()) == 0


class Slope(tracer.autograd.Function):
    """Twice or three times x; its gradient is cut where it is large."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2.0 if x.sum() > 0 else x * 3.0

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 0.5 if g.sum() > 2 else g


def test_functions_of_the_user_ask_forward_and_backward() -> None:
    def f(x: Any, s: Any) -> Any:
        return (Slope.apply(x) * s).sum()

    compiled = trace(tracer.value_and_grad(f))
    for sign, s in ((1, 0.5), (-1, 0.5), (1, 4.0), (-1, 4.0), (1, 0.5)):
        arguments = ONES * sign, np.array(s, np.float32)
        check(compiled(*arguments), tracer.value_and_grad(f)(*arguments))
    assert len(only(compiled).paths) == 4
    # a gradient that comes when the function has returned cannot decide its path
    x = tracer.tensor(ONES, requires_grad=True)
    result = trace(f)(x, arguments[1])
    check(result.detach(), f(x, arguments[1]).detach())
    with pytest.raises(
        tracer.TraceError, match=r"Call backward\(\) inside(?s:.*)test_paths\.py:\d+"
    ):
        result.backward()


# ---- export --------------------------------------------------------------------------------------


def test_a_path_is_not_exported_silently() -> None:
    f = trace(lambda x: x * 2.0 if x.sum() > 0 else x)
    with pytest.raises(
        tracer.TraceError, match=r"holds one path only.*tracer\.where(?s:.*)test_paths\.py:\d+"
    ):
        tracer.onnx.export(f, (ONES,))
    scaled = trace(
        lambda x, s: x * s if s > 0.5 else x
    )  # a float that alone decides is a constant of the model
    model = tracer.onnx.export(scaled, (ONES, 0.75))
    assert [i.name for i in model.graph.input] == ["x"]
