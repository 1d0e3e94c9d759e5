"""Which Python a traced function is: closures, globals, methods, classes, defaults, what changes between calls."""

from __future__ import annotations

import copy
import functools
import threading
import types
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracer
from tests.support.traced_values import agree, array, tensor
from tracer import TraceError, nn, trace

# What is shown here lies above kernels. Compiled too: whatever is about memory, results, failures and threads.
pytestmark = pytest.mark.kernels("python")


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    tracer.manual_seed(0)
    yield


FACTOR = 2.0


def test_methods_of_two_instances_of_one_class() -> None:
    def program(decorate: Any) -> Any:
        class Scale:
            def __init__(self, factor: float) -> None:
                self.factor, self.offset = factor, tensor(3)

            @decorate
            def apply(self, x: Any) -> Any:
                return x * self.factor + self.offset

            @classmethod
            @decorate
            def of_class(cls, x: Any) -> Any:
                return x * 2

            @staticmethod
            @decorate
            def static(x: Any) -> Any:
                return x * 3

            @property
            @decorate
            def value(self) -> Any:
                return self.offset * self.factor

        class Child(Scale):
            def apply(self, x: Any) -> Any:
                return super().apply(x) + 1

        a, b, c, x = Scale(2.0), Scale(3.0), Child(4.0), tensor(3)
        seen = [a.apply(x), b.apply(x), a.apply(x), c.apply(x), Scale.apply(b, x), a.value]
        a.factor, b.offset = 5.0, tracer.ones(3)
        seen += [a.apply(x), b.apply(x), a.value, b.value, Scale.of_class(x), a.of_class(x)]
        return [*seen, Scale.static(x), a.static(x), Child.of_class(x)]

    agree(program)


def test_nested_and_recursive_functions() -> None:
    def program(decorate: Any) -> Any:
        factor = {"value": 2.0}
        inner = decorate(lambda x: x * factor["value"])
        outer = decorate(lambda x: inner(x) + inner(inner(x)))

        @decorate
        def power(x: Any, n: int) -> Any:
            return x if n == 0 else power(x, n - 1) * 2

        x = tensor(3)
        seen = [outer(x), inner(x), power(x, 3)]
        factor["value"] = 3.0
        return [*seen, outer(x), inner(x), power(x, 2)]

    agree(program)


@pytest.mark.kernels("compiled")
def test_a_function_is_called_from_other_threads() -> None:
    def program(decorate: Any) -> Any:
        function, x = decorate(lambda x: tracer.exp(x) * 2), tensor(3)
        seen: list[Any] = []
        for count in (1, 4):
            threads = [
                threading.Thread(target=lambda: seen.append(function(x))) for _ in range(count)
            ]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        return [*seen, function(x)]

    agree(program)


def test_closures_globals_defaults_and_attributes_change(monkeypatch: pytest.MonkeyPatch) -> None:
    class Config:
        rate = 1.0

    def program(decorate: Any) -> Any:
        monkeypatch.setitem(globals(), "FACTOR", 2.0)
        offset, numbers, config, table = 2.0, [1.0, 2.0], Config(), array(3)
        model = nn.Linear(3, 3)
        model.scale = 2.0
        with tracer.no_grad():
            model.weight.fill_(0.5)
            model.bias.zero_()

        def plain(x: Any, k: float = 3.0) -> Any:
            return model(x) * FACTOR * model.scale + offset + k + numbers[0] + config.rate + table

        function, x = decorate(plain), tensor(3)
        seen = [function(x)]

        def again() -> None:
            seen.append(function(x))

        monkeypatch.setitem(globals(), "FACTOR", 5.0), again()
        offset = 7.0
        again()
        numbers[0] = 9.0
        again()
        config.rate = 4.0
        again()
        table[0] = 50.0
        again()
        table = table * 2
        again()
        plain.__defaults__ = (4.0,)
        again()
        model.scale = 3.0
        again()
        model.weight.data = array(3, 3)
        again()
        model.bias = nn.Parameter(array(3, seed=2))
        again()
        config.rate = 1.0
        again()
        return seen

    agree(program)


def test_containers_that_code_goes_through_and_local_names_of_objects() -> None:
    class Part:
        def __init__(self, rate: float) -> None:
            self.rate = rate

    def program(decorate: Any) -> Any:
        numbers, table, chosen = [1.0, 2.0, 3.0], {"a": 1.0}, {1, 2}
        layers = [(tensor(3, 3), tensor(3)), (tensor(3, 3, seed=1), None)]
        nested = {"scales": [0.5, [2.0]]}
        parts = {"first": Part(1.0), "second": Part(2.0)}
        which = "first"

        def helper(options: Any) -> float:
            return sum(options["scales"][1]) + options["scales"][0]

        def plain(x: Any) -> Any:
            for weight, bias in layers:
                x = x @ weight if bias is None else x @ weight + bias
            part = parts[which]
            first = parts["first"]
            total = sum(numbers) + sum(v for _, v in table.items()) + len(chosen)
            return x * total + helper(nested) + part.rate + first.rate * (2.5 in numbers)

        function, x = decorate(plain), tensor(2, 3)
        seen = [function(x), function(x)]

        def again() -> None:
            seen.extend((function(x), function(x)))

        numbers[1] = 5.0
        again()
        numbers.append(2.5)
        again()
        table["b"] = 3.0
        again()
        chosen.add(7)
        again()
        layers[1] = (tensor(3, 3, seed=2), tensor(3))
        again()
        layers.append((tensor(3, 3, seed=3), None))
        again()
        nested["scales"][1].append(4.0)
        again()
        parts["first"].rate = 8.0
        again()
        parts["first"] = Part(9.0)
        again()
        which = "second"
        again()
        return seen

    agree(program)


def test_a_list_that_is_read_and_changed_is_an_error_and_a_cache_is_not() -> None:
    history: list[float] = [0.0]

    @trace
    def grows(x: Any) -> Any:
        history.append(history[-1] + 1)
        return x * sum(history)

    with pytest.raises(TraceError, match=r"the list history is read and changed"):
        grows(tensor(3))
    assert history == [0.0]
    states = [tracer.zeros(3), tracer.ones(3)]

    @trace
    def grows_with_tensors(x: Any) -> Any:
        nonlocal states
        for state in list(states):
            x = x + state
        states += [x]
        return x

    kept = list(states)
    with pytest.raises(TraceError, match=r"the list states is read and changed"):
        grows_with_tensors(tensor(3))
    assert len(states) == 2 and all(x is y for x, y in zip(states, kept, strict=True))
    log = types.SimpleNamespace(lines=[])

    @trace
    def only_grows(x: Any) -> Any:
        lines = log.lines
        lines.append(x * 2)
        log.lines = lines
        return x

    with pytest.raises(TraceError, match=r"to which a traced function adds Tensors.*Assign a new"):
        only_grows(tensor(3))
    assert log.lines == []
    results: list[Any] = []
    recent: deque[Any] = deque(maxlen=2)
    different: set[Any] = set()
    for kind, keeps in (
        ("results is a list", lambda x: results.append(x * 2)),
        ("results is a list", lambda x: results.extend([x * 2, x])),
        ("recent is a deque", lambda x: recent.appendleft(x * 2)),
        ("different is a set", lambda x: different.add(x * 2)),
    ):
        with pytest.raises(TraceError, match=f"{kind} to which a traced function adds Tensors"):
            trace(keeps)(tensor(3))
    assert not results and not recent and not different

    def program(decorate: Any) -> Any:
        cache: dict[str, Any] = {}
        log: list[int] = []  # only written to

        @decorate
        def function(x: Any) -> Any:
            if "table" not in cache:
                cache["table"] = array(3)
            log.append(1)
            return x + cache["table"]

        x = tensor(3)
        seen = [function(x), function(x)]
        cache["table"] = array(3, seed=5)
        seen.append(function(x))
        cache.clear()
        return [*seen, function(x)]

    agree(program)


def test_counters_and_flags_that_the_function_itself_sets() -> None:
    """They are set once a call, as without a trace, and not by a call that fails."""

    def program(decorate: Any) -> Any:
        count = 0

        class Layer(nn.Module):
            ready = False

            def __init__(self) -> None:
                super().__init__()
                self.calls = 0
                self.register_buffer("mean", tracer.zeros(3))

            def forward(self, x: Any) -> Any:
                self.calls += 1
                if not self.ready:
                    self.mean = x.mean(0)
                    self.ready = True
                return x - self.mean

        class Record:
            calls = 0

        layer, record, table = Layer(), Record(), {"calls": 0, "mode": "first"}

        @decorate
        def function(x: Any) -> Any:
            nonlocal count
            count += 1
            record.calls += 2
            table["calls"] += record.calls
            table["mode"] = "later" if table["mode"] == "first" else "last"
            return layer(x) * count + table["calls"]

        x, seen = tensor(4, 3), []
        for k in range(4):
            plain = count, layer.calls, layer.ready, record.calls, dict(table)
            seen.append((function(x + k), plain))
        layer.ready = False
        return [*seen, function(x), count, record.calls, Record.calls, table]

    agree(program)
    state, model = {"calls": 0}, nn.Linear(3, 3)

    @trace
    def failing(x: Any) -> Any:
        state["calls"] += 1
        model.eval()
        model.note = "changed"
        raise KeyError("fail")

    with pytest.raises(KeyError):
        failing(array(3))
    assert state["calls"] == 0 and model.training and not hasattr(model, "note")


def test_tensors_that_the_function_puts_somewhere() -> None:
    """Names, attributes and items that it assigns have the new Tensors when the program has run."""

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)
            with tracer.no_grad():
                self.layer.weight.fill_(0.1)
                self.layer.bias.zero_()
            self.h: Any = None
            self.c: Any = None

        def forward(self, x: Any) -> Any:
            if self.h is None:
                self.h, self.c = x * 0, x * 0
            self.h, self.c = tracer.tanh(self.layer(self.h) + x), self.c + self.h
            return self.h * self.c

    class Holder:
        state: Any = None

    class Slotted:
        __slots__ = ("count", "state")

    def program(decorate: Any) -> Any:
        slotted, counter = Slotted(), Counter()
        slotted.count, slotted.state = 1.0, tracer.zeros(3)
        total, table, cell, holder = tracer.zeros(3), {"sum": tracer.zeros(3)}, Cell(), Holder()
        holder.last = None

        @decorate
        def function(x: Any, fail: bool = False) -> Any:
            nonlocal total
            total = total * 0.5 + x.sum(0)
            table["sum"] = table["sum"] + total
            y = cell(x)
            holder.last = y
            holder.given, table["new"] = x, y.sum()
            slotted.count, slotted.state = slotted.count + 1, slotted.state + x[0]
            counter["calls"] += 1
            if fail:
                raise KeyError
            return y + total

        seen = []
        for k in range(4):
            x = tensor(2, 3, seed=k)
            y = function(x)
            same = holder.given is x, cell.h.requires_grad
            seen.append((y, total, table["sum"], table["new"], holder.last, cell.h, same))
            seen.append((slotted.count, slotted.state, counter["calls"]))
        before = total, dict(table), holder.last, cell.h
        if decorate is trace:
            with pytest.raises(KeyError):
                function(tensor(2, 3), fail=True)
        after = total, dict(table), holder.last, cell.h
        assert all(x is y for x, y in zip(before[0::2], after[0::2], strict=True))
        cell.h = None
        seen.append(function(tensor(2, 3)))
        (seen[4][0] ** 2).sum().backward()  # through the state of earlier calls
        return [*seen, cell.layer.weight.grad]

    agree(program)


def test_tuples_lists_and_dicts_of_tensors_that_the_function_puts_somewhere() -> None:
    """They are made anew at each call, and what they held before is read from where it lies: one program."""

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.state: Any = None
            self.seen: Any = ()
            self.shape: Any = ()

        def forward(self, x: Any) -> Any:
            if self.state is None:
                self.state = x * 0, {"c": x * 0, "turns": 0}
            h, c = self.state[0], self.state[1]["c"]
            self.seen, self.shape = [], x.shape
            for _ in range(2):
                h = tracer.tanh(h + x)
                c = c * 0.5 + h
                self.seen.append(h)
            self.state = h, {"c": c, "turns": 2}
            return h * c

    class Slots:
        def __init__(self) -> None:
            self.table: dict[int, Any] = {}
            self.parts = [tracer.zeros(3), tracer.ones(3)]

        def layers(self, x: Any) -> Any:
            for k in range(2):
                self.parts[k] = self.parts[k] + x * k
                self.table[k] = self.parts[k], x
            return self.parts[1] * 2

        def first(self, x: Any) -> Any:
            self.table.setdefault(7, x * 2)
            self.table.update(sum=x.sum())
            return x + self.table[7]

        def replaced(self, x: Any) -> Any:
            last = self.parts[0]
            self.parts = [x, x]
            self.parts[0] = last + x * 2
            return last * 1

    def program(decorate: Any) -> Any:
        pair = [tracer.zeros(3), tracer.zeros(3)]
        cell = Cell()

        @decorate
        def function(x: Any, fail: bool = False) -> Any:
            nonlocal pair
            first, second = pair
            pair = [first + x, second * 0.5 + first]
            y = cell(x) + first
            if fail:
                raise KeyError
            return y

        seen: list[Any] = []
        for k in range(4):
            seen.append((function(tensor(3, seed=k)), pair, cell.state, cell.seen, cell.shape))
        if decorate is trace:
            assert function.timings().traces == 2  # of them one without a state of the cell
            before = pair, cell.state
            with pytest.raises(KeyError):
                function(tensor(3), fail=True)
            assert before[0] is pair and before[1] is cell.state
        cell.state = None
        seen.append((function(tensor(3)), list(pair), cell.state))
        pair = [tracer.ones(3), tracer.ones(3)]
        seen.append((function(tensor(3)), list(pair), cell.state))
        return seen

    agree(program)

    def methods(decorate: Any) -> Any:
        seen: list[Any] = []
        for name in ("layers", "first", "replaced"):
            slots = Slots()
            function = decorate(getattr(slots, name))
            for k in range(4):
                y = function(tensor(3, seed=k))
                seen.append((y, list(slots.parts), dict(slots.table)))
            if decorate is trace:
                assert function.timings().traces <= 2
        return seen

    agree(methods)


def test_objects_that_are_handed_to_helpers_are_followed() -> None:
    """By position, by keyword, through several functions and methods, under a local name, to a nested function."""

    class Helper:
        def scaled(self, options: Any, x: Any) -> Any:
            return scale(x, settings=options)

    def scale(x: Any, *, settings: Any) -> Any:
        return x * settings.factor * settings.weight

    def update(state: Any, x: Any) -> Any:
        state.total = state.total + x
        state.calls += 1
        return state.total * 1

    def program(decorate: Any) -> Any:
        config = types.SimpleNamespace(factor=2.0, weight=tensor(3))
        state = types.SimpleNamespace(total=tracer.zeros(3), calls=0)
        helper = Helper()

        @decorate
        def function(x: Any) -> Any:
            local = config

            def nested(options: Any) -> Any:
                return x + options.factor

            return helper.scaled(local, x) + update(state, x) + nested(config)

        x, seen = tensor(3, seed=1), []
        for _ in range(3):
            seen.append((function(x), state.total, state.calls))
        config.factor = 3.0
        seen.append((function(x), state.total, state.calls))
        config.weight = tensor(3, seed=2)
        state.total = tracer.zeros(3)
        seen.append((function(x), state.total, state.calls))
        return seen

    agree(program)


def test_objects_that_the_function_assigns_are_assigned_at_each_call() -> None:
    """Buffers that change places, another name for a Tensor, views; what is known by two names is looked at under both."""

    def program(decorate: Any) -> Any:
        def start() -> Any:
            base = tracer.zeros((2, 3))
            part = tensor(3)
            return types.SimpleNamespace(
                base=base, row=base[0], other=base[1], front=tensor(3), back=tensor(3, seed=1),
                parts=[part], same=[part], sizes=None, pair=(base[0], base[1]),
            )  # fmt: skip

        def ping_pong(state: Any, x: Any) -> Any:
            state.front, state.back = state.back, state.front
            state.front.add_(x)
            return state.front - state.back

        def rows(state: Any, x: Any) -> Any:
            state.row.add_(x)
            state.row, state.other = state.other, state.row
            return state.base * 1

        def pair(state: Any, x: Any) -> Any:
            first, second = state.pair
            first.add_(x)
            state.pair = second, first
            return state.base * 1

        def aliases(state: Any, x: Any) -> Any:
            state.parts[0].add_(x)
            state.parts = [state.parts[0] * 1, x]
            state.sizes = [len(state.parts)]
            return state.same[0] * 2

        seen: list[Any] = []
        for step in (ping_pong, rows, pair, aliases):
            state = start()
            function = decorate(lambda x, step=step, state=state: step(state, x))
            for k in range(5):
                y = function(tensor(3, seed=k))
                kept = state.front, state.base, state.row, state.parts, state.same, state.sizes
                seen.append((y, copy.deepcopy([x for x in kept if x is not None])))
                if state.sizes is not None:
                    state.sizes.append(9)
        return seen

    agree(program)
    config = types.SimpleNamespace(table=tracer.ones(3))
    sized = trace(lambda x: x * config.table.shape[0])
    assert sized(tracer.ones(1)).item() == 3
    config.table = tracer.ones(5)
    assert sized(tracer.ones(1)).item() == 5


def test_tensors_arrays_and_containers_of_classes_are_state() -> None:
    """Read through an instance, a subclass or the class; replaced there, or hidden by the instance's own."""

    def program(decorate: Any) -> Any:
        class Base(nn.Module):
            scale: Any = tensor(3)
            array: Any = array(3, seed=1)
            table: Any = {"a": tensor(3, seed=2), "b": [tensor(3, seed=3)]}  # noqa: RUF012
            total: Any = tracer.zeros(3)

        class Layer(Base):
            def forward(self, x: Any) -> Any:
                return x * self.scale * self.array * self.table["a"] + self.table["b"][0]

            @classmethod
            def scaled(cls, x: Any) -> Any:
                Base.total = Base.total + x
                return x * cls.scale

        class Slots:
            __slots__ = ("scale",)

            def __call__(self, x: Any) -> Any:
                return x * self.scale

        layer, slots = Layer(), Slots()
        slots.scale = tensor(3)
        functions = [decorate(f) for f in (lambda x: layer(x), Layer.scaled, lambda x: slots(x))]
        x, seen = tensor(3, seed=4), []

        def look() -> None:
            seen.append([f(x) for f in functions])

        look()
        Base.scale = tensor(3, seed=5)
        look()
        Layer.scale = slots.scale = tensor(3, seed=6)
        look()
        Base.array = array(3, seed=7)
        look()
        Base.table["a"] = tensor(3, seed=8)
        look()
        Base.table["b"][0] = tensor(3, seed=9)
        look()
        Base.table = {"a": tensor(3), "b": [tensor(3)]}
        look()
        layer.scale = tensor(3, seed=10)
        look()
        return [*seen, Base.total]

    agree(program)


def test_functions_and_callable_objects_that_are_replaced() -> None:
    class Power:
        def __init__(self, exponent: float) -> None:
            self.exponent = exponent

        def __call__(self, x: Any) -> Any:
            return x**self.exponent

    class Root:
        exponent = 2.0

        def __call__(self, x: Any) -> Any:
            return abs(x) ** (1 / self.exponent)

    def program(decorate: Any) -> Any:
        chosen: Any = types.SimpleNamespace(
            function=tracer.tanh, table={"f": np.exp}, layer=nn.Linear(3, 3)
        )
        chosen.call, activation = Power(2.0), tracer.relu
        with tracer.no_grad():
            chosen.layer.weight.fill_(0.5)
            chosen.layer.bias.fill_(0.25)

        @decorate
        def function(x: Any) -> Any:
            y = chosen.call(activation(chosen.function(x)))
            return chosen.table["f"](chosen.layer(y).detach())

        x = tensor(2, 3)
        seen = [function(x)]
        chosen.function = tracer.sin
        seen.append(function(x))
        activation = abs
        seen.append(function(x))
        chosen.table["f"] = np.cos
        seen.append(function(x))
        chosen.call = Power(3.0)
        seen.append(function(x))
        chosen.call = Root()
        seen.append(function(x))
        chosen.function = functools.partial(tracer.multiply, 3.0)
        seen.append(function(x))
        chosen.layer.forward = lambda y: y * 7
        seen.append(function(x))
        del chosen.layer.forward
        return [*seen, function(x)]

    agree(program)


def test_state_that_is_another_tensor_after_each_call_is_one_program() -> None:
    def program(decorate: Any) -> Any:
        class Holder:
            state = tracer.zeros(3)

        holder = Holder()
        holder.state = tracer.zeros(3)
        other = holder.state

        @decorate
        def function(x: Any) -> Any:
            before = holder.state
            holder.state = before * 0.5 + x
            return holder.state * 2

        @decorate
        def two_names(x: Any) -> Any:
            nonlocal other
            holder.state = holder.state + x
            other = other * 2 + holder.state
            return other

        seen, kept = [], []
        for k in range(5):
            seen.append(function(tensor(3, seed=k)))
            kept.append(holder.state)  # the old ones stay as they are
        holder.state = tracer.ones(3)
        seen.append(function(tensor(3)))
        if decorate is trace:
            assert function.timings().traces == 1
        holder.state = other = tracer.ones(3)
        seen += [two_names(tensor(3, seed=k)) for k in range(3)]
        holder.state = np.ones(3, np.float32)  # something else
        return [*seen, *kept, function(tensor(3))]

    agree(program)
