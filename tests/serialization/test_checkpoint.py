"""Files of weights and of whole training runs: exact, all or nothing, and unmoved by damage."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tracer
import tracer.nn.functional as F
from ops.types import DTYPES
from tracer import nn, optim, trace


def samples() -> dict[str, np.ndarray]:
    """An array of each element type, and the shapes and layouts that are special."""
    rng = np.random.default_rng(0)
    result = {}
    for dtype in DTYPES:
        numpy = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
        result[dtype] = (rng.standard_normal((3, 5)) * 40).astype("int64" if "u" in dtype else "f8")
        result[dtype] = np.abs(result[dtype]).astype(numpy)
    special = np.array([np.nan, -np.nan, np.inf, -0.0, 5e-324, 1e308])
    return result | {
        "special": special,
        "scalar": np.array(2.5, np.float32),
        "empty": np.zeros((0, 3), np.int16),
        "turned": np.arange(12.0).reshape(3, 4).T,
        "stepped": np.arange(12)[::-2],
        "big endian": np.arange(4, dtype=">i4"),
        'a name: "ü" \n {}': np.ones(1, np.bool_),
        "": np.ones(2, np.uint8),
    }


# ---- weights -------------------------------------------------------------------------------------


def test_every_element_type_and_shape_comes_back_to_the_bit(tmp_path: Path) -> None:
    path, arrays = tmp_path / "a.safetensors", samples()
    tracer.save_file(arrays, path)
    back = tracer.load_file(path)
    assert back.keys() == arrays.keys()
    for name, expected in arrays.items():
        assert back[name].shape == expected.shape
        assert back[name].dtype == expected.dtype.newbyteorder("=")
        native = np.ascontiguousarray(expected.astype(back[name].dtype))
        assert back[name].array.tobytes() == native.tobytes(), name


def test_the_format_is_the_one_that_others_read_and_write(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    path, arrays = tmp_path / "a.safetensors", samples()
    del arrays["bfloat16"], arrays["big endian"]  # the library's NumPy side has no such dtypes
    tracer.save_file(arrays, path, {"written by": "us"})
    for name, array in library.load_file(path).items():
        assert array.tobytes() == np.ascontiguousarray(arrays[name]).tobytes()
        assert array.dtype == arrays[name].dtype and array.shape == arrays[name].shape
    library.save_file({n: np.ascontiguousarray(a) for n, a in arrays.items()}, path)
    for name, t in tracer.load_file(path).items():
        assert t.array.tobytes() == np.ascontiguousarray(arrays[name]).tobytes()


def test_tensors_are_written_and_do_not_share_memory_with_what_is_read(tmp_path: Path) -> None:
    layer = nn.Linear(2, 3)
    path = tmp_path / "a.safetensors"
    tracer.save_file(layer.state_dict(), path)
    layer.load_state_dict({n: np.zeros(t.shape, np.float32) for n, t in layer.state_dict().items()})
    first, second = tracer.load_file(path), tracer.load_file(path)
    first["weight"].array[...] = 7
    assert np.any(second["weight"].array != 7) and np.any(second["weight"].array != 0)


@pytest.mark.parametrize(
    ("tensors", "metadata", "text"),
    [
        ([np.ones(2)], None, "a dict of arrays, got list"),
        ({"a": "text"}, None, "a: expected an array of numbers, got 'text'"),
        ({"a": np.ones(2, complex)}, None, "a: expected an array of numbers"),
        ({1: np.ones(2)}, None, "names and metadata are strings, got 1"),
        ({"\ud800": np.ones(2)}, None, "cannot be written as UTF-8"),
        ({"__metadata__": np.ones(2)}, None, "the format uses it"),
        ({"a": np.ones(2)}, {"epoch": 3}, "names and metadata are strings, got 3"),
    ],
)
def test_what_the_format_does_not_hold_is_refused(
    tmp_path: Path, tensors: Any, metadata: Any, text: str
) -> None:
    with pytest.raises(tracer.TracerError, match=rf"{text}(?s:.*)test_checkpoint\.py:\d+"):
        tracer.save_file(tensors, tmp_path / "a.safetensors", metadata)
    assert os.listdir(tmp_path) == []


# ---- writing: all or nothing ---------------------------------------------------------------------


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a.safetensors"
    tracer.save_file({"a": np.ones(2)}, path)
    old = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for function in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, fail)
            with pytest.raises(tracer.CheckpointError, match="cannot be written: No space left"):
                tracer.save_file({"a": np.zeros(2)}, path)
        assert path.read_bytes() == old and os.listdir(tmp_path) == ["a.safetensors"]


def test_places_that_cannot_be_written_or_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", tmp_path / "none" / "a", tmp_path / ("n" * 300)):
        with pytest.raises(tracer.CheckpointError, match="cannot be written"):
            tracer.save_file({"a": np.ones(2)}, path)
    for path in (tmp_path / "folder", tmp_path / "none"):
        with pytest.raises(tracer.CheckpointError, match=r"cannot be read(?s:.*)\.py:\d+"):
            tracer.load_file(path)
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(tracer.CheckpointError, match="Permission denied"):
        tracer.save_file({"a": np.ones(2)}, tmp_path / "a")


def test_a_link_is_followed_and_the_umask_holds(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    tracer.save_file({"a": np.ones(2)}, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert tracer.load_file(tmp_path / "real").keys() == {"a"}
    mask = os.umask(0o027)
    try:
        tracer.save_file({"a": np.ones(2)}, tmp_path / "new")
    finally:
        os.umask(mask)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


# ---- hostile files -------------------------------------------------------------------------------


def file_of(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: Any = "F32", shape: Any = (1,), offsets: Any = (0, 4), **more: Any) -> Any:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


FOUR = b"\0\0\x80\x3f"
HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "no valid safetensors"),
    "too short": (b"1234567", "no valid safetensors"),
    "huge header": (struct.pack("<Q", 2**63) + b"{}", "no valid safetensors"),
    "long header": (struct.pack("<Q", 3) + b"{}", "no valid safetensors"),
    "no JSON": (file_of(b"{'a': 1}"), "no valid safetensors"),
    "no UTF-8": (file_of(b'{"\xff": 1}'), "no valid safetensors"),
    "deep JSON": (file_of(b'{"a":' + b"[" * 200_000), "no valid safetensors"),
    "a long number": (file_of(b'{"a":' + b"1" * 10_000 + b"}"), "no valid safetensors"),
    "a list": (file_of([1]), "no valid safetensors"),
    "a name twice": (file_of(b'{"a":1,"a":2}'), "no valid safetensors"),
    "a key twice": (file_of(b'{"a":{"dtype":"F32","dtype":"F32"}}'), "no valid safetensors"),
    "metadata of numbers": (file_of({"__metadata__": {"a": 1}}), "no valid safetensors"),
    "an entry of text": (file_of({"a": "x"}), "no valid safetensors"),
    "an entry too little": (file_of({"a": {"dtype": "F32"}}), "no valid safetensors"),
    "no element type": (file_of({"a": entry("F31")}, FOUR), "no valid safetensors"),
    "an element type of eight bits": (file_of({"a": entry("F8_E4M3")}), "no valid safetensors"),
    "an element type of lists": (file_of({"a": entry(["F32"])}, FOUR), "no valid safetensors"),
    "a negative size": (file_of({"a": entry(shape=(-1,))}, FOUR), "no valid safetensors"),
    "a size of half": (file_of({"a": entry(shape=(1.0,))}, FOUR), "no valid safetensors"),
    "a size of truth": (file_of({"a": entry(shape=(True,))}, FOUR), "no valid safetensors"),
    "a shape of none": (file_of({"a": entry(shape=None)}, FOUR), "no valid safetensors"),
    "a huge shape": (file_of({"a": entry(shape=(2**40, 2**40))}, FOUR), "no valid safetensors"),
    "a huge empty shape": (
        file_of({"a": entry(shape=(0, 2**61, 2**61), offsets=(0, 0))}),
        "no valid safetensors",
    ),
    "too many axes": (file_of({"a": entry(shape=(1,) * 65)}, FOUR), "no valid safetensors"),
    "one offset": (file_of({"a": entry(offsets=(0,))}, FOUR), "no valid safetensors"),
    "offsets of text": (file_of({"a": entry(offsets="04")}, FOUR), "no valid safetensors"),
    "offsets backwards": (file_of({"a": entry(offsets=(4, 0))}, FOUR), "no valid safetensors"),
    "a hole": (file_of({"a": entry(offsets=(4, 8))}, FOUR * 2), "no valid safetensors"),
    "an overlap": (
        file_of({"a": entry(), "b": entry("F16", (1,), (2, 4))}, FOUR),
        "no valid safetensors",
    ),
    "data too few": (file_of({"a": entry()}, FOUR[:3]), "no valid safetensors"),
    "data too many": (file_of({"a": entry()}, FOUR + b"\0"), "no valid safetensors"),
    "a bool of two": (file_of({"a": entry("BOOL", (1,), (0, 1))}, b"\2"), "neither 0 nor 1"),
    "a wrong checksum": (
        file_of({"__metadata__": {"tracer.checksum": "00"}, "a": entry()}, FOUR),
        "checksum does not fit",
    ),
    "a pickle": (b"\x80\x04\x95\x0b\0\0\0\0\0\0\0\x8c\x07builtins.", "no valid safetensors"),
    "a zip": (b"PK\x03\x04" + bytes(60), "no valid safetensors"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_of_another_form_is_refused(tmp_path: Path, name: str) -> None:
    content, text = HOSTILE[name]
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(tracer.CheckpointError, match=rf"{text}(?s:.*)test_checkpoint\.py:\d+"):
        tracer.load_file(path)


def test_the_smallest_files_that_are_right(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(file_of({}))
    assert tracer.load_file(path) == {}
    path.write_bytes(file_of({"a": entry()}, FOUR))
    assert tracer.load_file(path)["a"].tolist() == [1.0]
    tracer.save_file({}, path)
    assert tracer.load_file(path) == {}


# ---- a training run ------------------------------------------------------------------------------


class Net(nn.Module):
    """A small network with a buffer that training changes."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, 3)
        )
        self.register_buffer("steps", tracer.zeros((), "int64"))

    def forward(self, x):
        self.steps = self.steps + 1
        return self.layers(x)


def run_of(kind: type[optim.Optimizer] = optim.Adam, width: int = 5, **options: Any):
    tracer.manual_seed(0)
    model = Net(width)
    optimizer = kind(model.parameters(), lr=0.01, **options)

    @trace
    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


def train(step: Callable[..., Any], steps: range) -> list[float]:
    losses = []
    for k in steps:
        rng = np.random.default_rng(k)
        x = rng.standard_normal((4, 6), np.float32)
        losses.append(float(step(x, rng.integers(0, 3, 4))))
    return losses


def everything(model: nn.Module, optimizer: optim.Optimizer) -> str:
    """All state of a run, to the bit."""
    state = optimizer.state_dict()
    parts = [(n, t.array.tobytes().hex()) for n, t in model.state_dict().items()]
    for number, members in state["state"].items():
        parts += [(f"{number}.{n}", t.array.tobytes().hex()) for n, t in members.items()]
    parts.append(("options", repr(state["param_groups"])))
    parts.append(("generator", repr(tracer.random.get_state().tolist())))
    return repr(parts)


RESUME = """
import sys
from tests.serialization.test_checkpoint import everything, run_of, tracer, train

tracer.random.manual_seed(99)
model, optimizer, step = run_of()
extra = tracer.load_checkpoint(sys.argv[1], model, optimizer)
losses = train(step, range(extra["step"], 10))
print(repr((losses, everything(model, optimizer))))
"""


def test_a_run_resumed_in_another_process_has_the_same_bits(tmp_path: Path, run_python) -> None:
    model, optimizer, step = run_of()
    train(step, range(5))
    path = tmp_path / "run.safetensors"
    tracer.save_checkpoint(path, model, optimizer, extra={"step": 5})
    losses = train(step, range(5, 10))
    assert step.timings().traces == 1 and int(model.steps) == 10
    done = run_python(RESUME, str(path))
    assert done.stdout.strip() == repr((losses, everything(model, optimizer)))


def test_a_run_goes_on_in_place_and_its_programs_with_it(tmp_path: Path) -> None:
    model, optimizer, step = run_of(optim.SGD, momentum=0.9)
    train(step, range(2))
    path = tmp_path / "run.safetensors"
    tracer.save_checkpoint(path, model, optimizer, extra={"note": "ü", "rates": [1, None]})
    saved = everything(model, optimizer)
    first = train(step, range(2, 4))
    optimizer.param_groups[0]["lr"] = 5
    assert tracer.load_checkpoint(path, model, optimizer) == {"note": "ü", "rates": [1, None]}
    assert everything(model, optimizer) == saved
    assert train(step, range(2, 4)) == first
    assert step.timings().traces == 1


def test_weights_alone_and_a_generator_of_ones_own(tmp_path: Path) -> None:
    model, optimizer, step = run_of()
    train(step, range(2))
    generator = tracer.Generator(7)
    tracer.random.rand(3, generator=generator)
    path = tmp_path / "run.safetensors"
    tracer.save_checkpoint(path, model, optimizer, generator)
    default = tracer.random.get_state().tolist()
    other, restored = Net(), tracer.Generator(0)
    default = tracer.random.get_state().tolist()
    assert tracer.load_checkpoint(path, other, generator=restored) == {}
    assert restored.get_state().tolist() == [7, 3]
    assert tracer.random.get_state().tolist() == default
    for name, t in other.state_dict().items():
        np.testing.assert_array_equal(t, model.state_dict()[name])
    tracer.save_checkpoint(path, model)
    with pytest.raises(tracer.ArgumentError, match="saved with the optimiser None"):
        tracer.load_checkpoint(path, model, optimizer)


@pytest.mark.parametrize(
    ("other", "error", "text"),
    [
        (lambda: run_of(width=4), tracer.ShapeError, r"layers\.0\.weight has the type float32\[4"),
        (lambda: run_of(optim.AdamW), tracer.ArgumentError, "optimiser 'Adam', .* into AdamW"),
        (lambda: (nn.Linear(6, 5), run_of()[1]), tracer.ArgumentError, "missing weight, bias"),
        (
            lambda: (m := run_of()[0], optim.Adam([m.layers[0].weight])),
            tracer.ArgumentError,
            r"groups of \[1\] parameters",
        ),
    ],
)
def test_a_run_that_does_not_fit_changes_nothing(tmp_path: Path, other, error, text) -> None:
    path = tmp_path / "run.safetensors"
    tracer.save_checkpoint(path, *run_of()[:2])
    model, optimizer = other()[:2]
    tracer.manual_seed(3)
    with tracer.no_grad():
        for p in model.parameters():
            p.fill_(3.0)
    before = everything(model, optimizer)
    with pytest.raises(error, match=rf"{text}(?s:.*)test_checkpoint\.py:\d+"):
        tracer.load_checkpoint(path, model, optimizer)
    assert everything(model, optimizer) == before


def test_what_is_no_model_or_optimiser_is_refused(tmp_path: Path) -> None:
    model, file = nn.Linear(2, 2), tmp_path / "run.safetensors"
    wrong: tuple[tuple[Any, str], ...] = (
        ((model.state_dict(),), "the model is a Module, got dict"),
        ((model, model), "the optimiser is one of tracer.optim, or None, got Linear"),
        ((model, None, 7), "the generator is a tracer.Generator, or None, got int"),
    )
    for arguments, text in wrong:
        for function in (tracer.save_checkpoint, tracer.load_checkpoint):
            with pytest.raises(tracer.ArgumentError, match=text):
                function(file, *arguments)
    assert not file.exists()


def test_what_json_does_not_hold_is_refused(tmp_path: Path) -> None:
    model, optimizer, _ = run_of()
    for extra in ({"a": np.ones(2)}, {"a": {1, 2}}, {(1, 2): 3}):
        with pytest.raises(tracer.ArgumentError, match="must be what JSON holds"):
            tracer.save_checkpoint(tmp_path / "a", model, optimizer, extra=extra)
    for odd in ([1], "epoch"):
        with pytest.raises(tracer.ArgumentError, match="extra is a dict"):
            tracer.save_checkpoint(tmp_path / "a", model, optimizer, extra=odd)  # type: ignore[arg-type]
    with pytest.raises(tracer.TraceError, match="while a function is traced"):
        trace(lambda: tracer.save_checkpoint(tmp_path / "a", model))()
    assert os.listdir(tmp_path) == []


def test_damage_is_noticed_and_changes_nothing(tmp_path: Path) -> None:
    model, optimizer, _ = run_of()
    path = tmp_path / "run.safetensors"
    tracer.save_checkpoint(path, model, optimizer, extra={"step": 1})
    whole = path.read_bytes()
    tracer.manual_seed(3)
    with tracer.no_grad():
        model.layers[0].weight.fill_(1.0)
    before = everything(model, optimizer)
    damaged = [whole[:n] for n in (*range(0, 24), *range(24, len(whole), 97), len(whole) - 1)]
    damaged.append(whole + b"\0")
    rng = np.random.default_rng(0)
    places = np.unique([*range(0, 16), *rng.integers(0, len(whole), 300), len(whole) - 1])
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(rng.integers(0, 8))
        damaged.append(bytes(flipped))
    same = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            tracer.load_checkpoint(path, model, optimizer)
        except tracer.CheckpointError:
            assert everything(model, optimizer) == before
        else:  # a space of the padding became another blank
            same += 1
            path.write_bytes(whole)
            other, its = run_of()[:2]
            tracer.load_checkpoint(path, other, its)
            assert everything(model, optimizer) == everything(other, its)
            before = everything(model, optimizer)
    assert same <= 3 and len(damaged) > 300


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda t, m: m.pop("format"), "no checkpoint of a training run"),
        (lambda t, m: m.update(format="tracer-checkpoint-9"), "no checkpoint of a training run"),
        (lambda t, m: m.pop("run"), "cannot be read"),
        (lambda t, m: m.update(run="[" * 100_000), "cannot be read"),
        (lambda t, m: m.update(run='{"extra": 1}'), "cannot be read"),
        (lambda t, m: t.pop("generator"), "generator's state is missing"),
        (lambda t, m: t.update(generator=np.zeros(2)), "generator's state is missing"),
        (lambda t, m: t.update(other=np.zeros(2)), "'other' is no part"),
        (lambda t, m: t.update({"optimizer.x.step": np.zeros(2)}), "is no part"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path, change, text: str) -> None:
    model, optimizer, _ = run_of()
    path = tmp_path / "run.safetensors"
    tracer.save_checkpoint(path, model, optimizer)
    length = struct.unpack("<Q", path.read_bytes()[:8])[0]
    metadata = json.loads(path.read_bytes()[8 : 8 + length])["__metadata__"]
    tensors: dict[str, Any] = dict(tracer.load_file(path))
    change(tensors, metadata)
    tracer.save_file(tensors, path, metadata)
    before = everything(model, optimizer)
    with pytest.raises(tracer.CheckpointError, match=text):
        tracer.load_checkpoint(path, model, optimizer)
    assert everything(model, optimizer) == before
