"""The benchmark judges honestly: ratios, bounds, losses first, missing and disagreeing peers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import report, rows, run
from benchmarks.rows import Row

ROOT = Path(__file__).resolve().parents[2]


def found(times: dict[str, dict[str, list[list[float]]]], **limits: float) -> run.Found:
    result = run.Found()
    for row, peers in times.items():
        for peer, samples in peers.items():
            result.samples[row][peer] = samples
    if limits:
        result.limits.append(limits)
    return result


def test_a_line_compares_with_the_best_peer_and_with_the_limit() -> None:
    row = Row("work", "about", bytes_moved=40, flops=10, wanted_ratio=0.6)
    times = {"work": {"tracer": [[2.0], [4.0]], "jax": [[6.0]], "torch": [[5.0]]}}
    (line,) = report.judge([row], found(times, bandwidth=20, arithmetic=10))
    assert (line.times["tracer"].median, line.times["tracer"].processes) == (3.0, 2)
    assert (line.times["tracer"].lower, line.times["tracer"].upper) == (2.5, 3.5)
    assert (line.best_peer, line.ratio) == ("torch", 0.6)
    assert (line.floor, line.floor_kind) == (2.0, "memory")
    assert not line.loss


@pytest.mark.parametrize(
    ("row", "ours", "loss"),
    [
        (Row("work", "", wanted_ratio=0.6), 2.9, False),
        (Row("work", "", wanted_ratio=0.6), 3.1, True),  # quicker than the peer, but not enough
        (Row("work", "", wanted_ratio=1.0), 5.1, True),
        (Row("work", "", wanted_seconds=6.0), 4.9, False),
        (Row("work", "", wanted_seconds=6.0), 5.1, True),  # within the bound, slower than the peer
        (Row("work", "", wanted_seconds=4.0), 4.1, True),
        (Row("work", ""), 5.1, True),
        (Row("work", "", wanted_ratio=0.6, against=("torch",)), 5.9, False),
    ],
)
def test_a_loss_is_slower_than_the_peer_or_over_the_bound(
    row: Row, ours: float, loss: bool
) -> None:
    times = {"work": {"tracer": [[ours]], "jax": [[5.0]], "torch": [[10.0]]}}
    (line,) = report.judge([row], found(times))
    assert line.loss is loss


def test_losses_stand_first_and_the_worst_at_the_top() -> None:
    table = [Row(name, "", wanted_ratio=1.0) for name in ("won", "lost", "missing", "badly_lost")]
    result = found(
        {
            "won": {"tracer": [[1.0]], "jax": [[2.0]]},
            "lost": {"tracer": [[3.0]], "jax": [[2.0]]},
            "badly_lost": {"tracer": [[9.0]], "jax": [[2.0]]},
            "missing": {"jax": [[2.0]]},
        }
    )
    result.failures["missing"]["tracer"] = "ImportError"
    lines = report.judge(table, result)
    assert [line.row.name for line in lines] == ["missing", "badly_lost", "lost", "won"]
    text = report.table(lines, rows.PEERS).splitlines()
    assert [line.startswith("LOSS") for line in text[2:]] == [True, True, True, False]
    assert "no result" in text[2]
    json.dumps(report.as_data(lines), allow_nan=False)


def test_a_peer_that_computed_something_else_is_named() -> None:
    result = run.Found()
    result.checks["work"] = {"tracer": [1.0, 2.0], "jax": [1.0, 2.00001], "torch": [1.0, 2.1]}
    (text,) = report.disagreements(result)
    assert "torch" in text and "2.1" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (3e-6, "3 µs"), (2e-7, "0.2 µs")]
)
def test_durations_have_three_digits_and_a_unit(seconds: float, text: str) -> None:
    assert report.duration(seconds) == text


def test_every_row_is_filled_by_one_measurement() -> None:
    filled = [name for m in rows.measurements() for name in sorted(run.names(m))]
    assert sorted(filled) == sorted(row.name for row in rows.rows())


def test_a_process_measures_and_a_broken_one_is_reported(tmp_path: Path) -> None:
    settings = run.Settings(rounds=1, threads=1, seconds=0.01, peers=["numpy"], only=[])
    answer, error = run.start(["steady", "numpy", "call_overhead"], settings, tmp_path, 60)
    assert error == ""
    assert len(answer["seconds"]) == 21 and 0 < answer["seconds"][0] <= answer["seconds"][-1] < 1e-3
    answer, error = run.start(["steady", "numpy", "no_such_work"], settings, tmp_path, 60)
    assert answer == {} and "ValueError" in error


def test_the_command_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    command = [sys.executable, "-m", "benchmarks", "--rounds", "1", "--seconds", "0.01"]
    command += ["--peers", "numpy", "--only", "call_overhead", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "GB/s" in done.stdout and "allocates its results" in done.stdout
    (line,) = json.loads(out.read_text())["lines"]
    assert line["row"]["name"] == "call_overhead"
    assert line["times"]["numpy"]["median"] < 1e-3
