"""How the polynomials of the vector mathematics were found: run `python -m
codegen.vector.coefficients NAME ...`.

Each entry of RECIPES says which function is approximated, on which interval, by which powers, and
relative to what. The Remez exchange finds the best polynomial in 60-digit arithmetic; then
coefficients are rounded to the format one by one, lowest power first, and the others fitted again
around them. Needs mpmath, which nothing else here does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import mpmath as mp  # type: ignore[import-untyped]
import numpy as np

mp.mp.dps = 60
Function = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Approximate `function` on [low, high] by sum of c*x**p over `powers`, least |weight * error|,
    rounded to `element`.
    """

    function: Function
    low: Any
    high: Any
    powers: tuple[int, ...]
    element: str
    weight: Function = lambda x: mp.mpf(1)


def rounded(value: Any, element: str) -> Any:
    """An mpmath number to the nearest float32 or float64, exactly."""
    if element == "f64":
        return mp.mpf(float(value))
    _, exponent = mp.frexp(value)
    scale = mp.mpf(2) ** (24 - max(exponent, -125))
    return mp.nint(value * scale) / scale


class Exchange:
    """Remez' exchange for one recipe; target and weight are sampled once."""

    def __init__(self, recipe: Recipe, points: int = 600) -> None:
        self.recipe = recipe
        middle, half = (recipe.high + recipe.low) / 2, (recipe.high - recipe.low) / 2
        nodes = [mp.mpf(middle) + half * mp.cos(mp.pi * k / (points - 1)) for k in range(points)]
        self.x = [x for x in reversed(nodes) if recipe.weight(x) != 0]
        self.target = [recipe.function(x) for x in self.x]
        self.weight = [recipe.weight(x) for x in self.x]

    def fit(self, powers: Sequence[int], fixed: dict[int, Any]) -> tuple[dict[int, Any], Any]:
        """The best coefficients of `powers` beside the fixed ones; the largest weighted error."""
        count = len(powers) + 1
        target = [
            t - sum(c * x**p for p, c in fixed.items())
            for t, x in zip(self.target, self.x, strict=True)
        ]
        if not powers:
            return {}, max(abs(t * w) for t, w in zip(target, self.weight, strict=True))
        last = len(self.x) - 1
        picks = [round(last * (1 - np.cos(np.pi * (k + 0.5) / count)) / 2) for k in range(count)]
        picks = sorted(set(picks))
        while len(picks) < count:
            picks = sorted({*picks, next(k for k in range(last) if k not in picks)})
        best: dict[int, Any] = {}
        least = mp.inf
        for _ in range(30):
            matrix = mp.matrix(count, count)
            right = mp.matrix(count, 1)
            for row, k in enumerate(picks):
                for column, p in enumerate(powers):
                    matrix[row, column] = self.x[k] ** p
                matrix[row, count - 1] = (-1) ** row / self.weight[k]
                right[row] = target[k]
            answer = mp.lu_solve(matrix, right)
            solution = {p: answer[column] for column, p in enumerate(powers)}
            errors = [
                (sum(c * x**p for p, c in solution.items()) - t) * w
                for x, t, w in zip(self.x, target, self.weight, strict=True)
            ]
            worst = max(map(abs, errors))
            if worst < least:
                best, least = solution, worst
            if worst <= abs(answer[count - 1]) * mp.mpf("1.01"):
                break
            picks = self.extrema(errors, count)
            if len(picks) < count:  # no alternation left: rounding rules
                break
        return best, least

    @staticmethod
    def extrema(errors: list[Any], count: int) -> list[int]:
        """Places of largest error of alternating sign."""
        picks: list[int] = []
        for k, error in enumerate(errors):
            if picks and (error > 0) == (errors[picks[-1]] > 0):
                if abs(error) > abs(errors[picks[-1]]):
                    picks[-1] = k
            else:
                picks.append(k)
        while len(picks) > count:
            if len(picks) == count + 1:
                picks = picks[1:] if abs(errors[picks[0]]) < abs(errors[picks[-1]]) else picks[:-1]
            else:
                pairs = [max(abs(errors[a]), abs(errors[b])) for a, b in pairwise(picks)]
                at = pairs.index(min(pairs))
                del picks[at : at + 2]
        return picks


def coefficients(recipe: Recipe) -> tuple[tuple[float, ...], float]:
    """The rounded coefficients, highest power first, and the largest weighted error."""
    exchange = Exchange(recipe)
    fixed: dict[int, Any] = {}
    free = sorted(recipe.powers)
    solution, worst = exchange.fit(free, {})
    while free:
        power = free.pop(0)
        fixed[power] = rounded(solution[power], recipe.element)
        solution, worst = exchange.fit(free, fixed)
    return tuple(float(fixed[p]) for p in sorted(recipe.powers, reverse=True)), float(worst)


HEADER = '''"""Coefficients of the vector mathematics, highest power first.

Written by `python -m benchmarks.vector_math.coefficients`. What each one approximates: the
`recipes.py` beside it. The comments are the largest errors, relative to the function.
"""
'''


def main(names: Sequence[str]) -> None:
    """Print the tables of the named recipes; of all, as the file `tables.py`."""
    from benchmarks.vector_math.recipes import RECIPES

    if not names:
        print(HEADER, end="")
    for name in names or RECIPES:
        found, worst = coefficients(RECIPES[name])
        print(f"\n{name} = (  # 2**{float(mp.log(worst, 2)):.1f}")
        for c in found:
            print(f"    {c!r},")
        print(")", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
