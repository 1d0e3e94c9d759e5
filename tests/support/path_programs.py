"""Random functions whose Python depends on values, as text: branches, loops, early returns, errors, state, random numbers.

All elements are small whole numbers in float64, and all limits lie between them: every way to run a function gives the same bits.
"""

from __future__ import annotations

import random

LIMIT = 40  # of the size of elements
_PLACES = range(4)


def draw(seed: int) -> str:
    """The text of `f(x)`, which uses `w` (a leaf that requires a gradient), `buffer`, `count`, `tracer` and `random`."""
    return _Writer(random.Random(seed)).function()


class _Writer:
    def __init__(self, choose: random.Random) -> None:
        self._choose = choose
        self._lines: list[str] = []
        self._names = ["x", "w", "buffer", "a", "b", "c"]

    def function(self) -> str:
        self._add(1, "a, b, c, d, out = x * 1.0, x + w, x - 1.0, x * 0.0, []")
        for _ in range(self._choose.randint(3, 5)):
            self._statement(1)
        if self._choose.random() < 0.7:
            self._add(1, "loss = (a * w + b + c).sum()")
            self._add(1, "w.grad = None")
            self._add(1, "loss.backward()")
            self._add(1, "with tracer.no_grad():")
            self._add(2, "w.copy_(tracer.clip(w - tracer.clip(w.grad, -1, 1), -5, 5))")
        self._add(1, "return a.detach() * 1.0, b.detach() + c.detach(), d.detach() * 1.0, *out")
        return "def f(x):\n" + "\n".join(self._lines) + "\n"

    def _add(self, depth: int, text: str) -> None:
        self._lines.append("    " * depth + text)

    def _vector(self, depth: int = 0) -> str:
        """An expression for four whole numbers."""
        kind = self._choose.randrange(8 if depth < 2 else 2)
        if kind < 2:
            return self._choose.choice(self._names)
        one, two = self._vector(depth + 1), self._vector(depth + 1)
        forms = [
            f"({one} + {two})",
            f"({one} - {two})",
            f"tracer.maximum({one}, {two})",
            f"({one}).flip(0)",
            f"tracer.clip({one} * -2.0, -{LIMIT}, {LIMIT})",
            f"({one} * 0.0 + ({two}).sum())",
        ]
        return forms[kind - 2]

    def _question(self) -> str:
        v, limit = self._vector(1), self._choose.randint(-6, 6) + 0.5
        forms = [
            f"({v}).sum() > {limit}",
            f"({v}).max() < {limit}",
            f"({v} > {limit}).any()",
            f"int(({v})[{self._place()}]) % 3 == 1",
            "count % 2 == 0",
            f"count > 2 and ({v}).min() < {limit}",
        ]
        return self._choose.choice(forms)

    def _place(self) -> int:
        return self._choose.choice(_PLACES)

    def _block(self, depth: int) -> None:
        for _ in range(self._choose.randint(1, 2)):
            self._statement(depth)

    def _statement(self, depth: int) -> None:
        kinds = ["assign", "assign", "state", "draw", "gather", "note"]
        if depth < 4:
            kinds += ["branch", "branch", "turns", "repeat", "leave"]
        getattr(self, f"_{self._choose.choice(kinds)}")(depth)

    def _assign(self, depth: int) -> None:
        name = self._choose.choice("abc")
        self._add(depth, f"{name} = tracer.clip({self._vector()}, -{LIMIT}, {LIMIT})")

    def _state(self, depth: int) -> None:
        changes = [
            "count.add_(1)",
            "buffer[1:3].mul_(-1.0)",
            f"buffer.copy_(tracer.clip({self._vector()}, -20, 20).detach())",
        ]
        self._add(depth, self._choose.choice(changes))

    def _draw(self, depth: int) -> None:
        self._add(depth, "a = a + random.randint(-2, 3, (4,)).double()")

    def _gather(self, depth: int) -> None:
        """An index that is bad for one value in five; what it finds is always used."""
        self._add(depth, f"d = d + a[abs(b[{self._place()}]).long() % 5]")

    def _note(self, depth: int) -> None:
        self._add(depth, f"out.append(int(({self._vector(1)}).sum()) % 3)")

    def _branch(self, depth: int) -> None:
        self._add(depth, f"if {self._question()}:")
        self._block(depth + 1)
        if self._choose.random() < 0.6:
            self._add(depth, "else:")
            self._block(depth + 1)

    def _turns(self, depth: int) -> None:
        turn = f"turn{len(self._lines)}"
        self._add(depth, f"{turn} = 0")
        self._add(depth, f"while {turn} < 3 and {self._question()}:")
        self._add(depth + 1, f"{turn} += 1")
        self._block(depth + 1)
        if self._choose.random() < 0.4:
            self._add(depth + 1, f"if {self._question()}:")
            self._add(depth + 2, "break")

    def _repeat(self, depth: int) -> None:
        self._add(depth, f"for _ in range(int(abs(({self._vector(1)})[{self._place()}])) % 3):")
        self._block(depth + 1)

    def _leave(self, depth: int) -> None:
        self._add(depth, f"if {self._question()}:")
        ways = [
            "raise ValueError('left')",
            "return a.detach() * 2.0, c.detach() + d.detach(), *out",
        ]
        self._add(depth + 1, self._choose.choice(ways))
