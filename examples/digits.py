"""Train a network on handwritten digits in one compiled step, look inside, export it to ONNX.

`make demo` runs this file. The data are the 1,797 real digits, 8 x 8 pixels each, that come with
scikit-learn. Two ONNX files and a picture of the loss are left in `out/`.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from tqdm import tqdm

import tracer
import tracer.nn.functional as F
from tracer import nn, optim, trace

OUT = Path("out")
EPOCHS, BATCH = 30, 32
TRAINING = 45 * BATCH  # digits to train with; the other 357 are held out


def network() -> nn.Module:
    """64 pixels in, a score for each of the 10 digits out."""
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def main() -> None:
    """Train, show, export."""
    OUT.mkdir(exist_ok=True)
    tracer.manual_seed(0)
    rng = np.random.default_rng(0)
    data = load_digits()
    order = rng.permutation(len(data.target))
    x = (data.data[order] / 16).astype(np.float32)
    y = data.target[order].astype(np.int64)
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @trace
    def step(x, y):
        """Forward, gradients and update: one compiled program."""
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    begin = time.perf_counter()
    losses = train(step, x[:TRAINING], y[:TRAINING], rng)
    total = time.perf_counter() - begin
    spent = step.timings()  # seconds
    right = np.mean(np.asarray(model(x[TRAINING:])).argmax(axis=1) == y[TRAINING:])

    batch = x[:BATCH], y[:BATCH]
    print(f"\n---- The training step as IR ----\n\n{step.ir(*batch)}")
    print(f"\n---- One of its kernels ----\n\n{step.kernels(*batch)[0]}")
    print("\n---- Results ----\n")
    print(f"tracing    {spent.tracing * 1e3:8.1f} ms")
    print(f"compiling  {spent.compiling * 1e3:8.1f} ms, or loading what was compiled before")
    running = total - spent.tracing - spent.compiling
    print(f"running    {running * 1e3:8.1f} ms for {len(losses)} steps, the progress bar included")
    print(f"held out   {right:8.1%} of {len(x) - TRAINING} digits read right")
    assert right >= 0.97, "the training went wrong"
    draw(losses, OUT / "loss.png")
    check_network(model, x, OUT / "digits.onnx")
    check_training_step(step, model, optimizer, x, y, OUT / "digits_step.onnx")
    print(f"in {OUT}/: {', '.join(sorted(path.name for path in OUT.iterdir()))}")


def train(step, x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> list[float]:
    """Run the step on every batch of every epoch, and return the losses."""
    losses: list[float] = []
    with tqdm(total=EPOCHS * len(x) // BATCH, unit="step", desc="training") as bar:
        for _ in range(EPOCHS):
            for batch in rng.permutation(len(x)).reshape(-1, BATCH):
                losses.append(float(step(x[batch], y[batch])))
                bar.update()
            bar.set_postfix(loss=f"{np.mean(losses[-len(x) // BATCH :]):.4f}")
    return losses


def check_network(model: nn.Module, x: np.ndarray, path: Path) -> None:
    """Export the network, and run it in ONNX Runtime on a batch size that was never traced."""
    tracer.onnx.export(model, x[:BATCH], path, dynamic_shapes={"x": {0: "batch"}})
    session = open_checked(path)
    (pixels,) = session.get_inputs()
    compare("the network", [np.asarray(model(x))], session.run(None, {pixels.name: x}))


def check_training_step(step, model, optimizer, x: np.ndarray, y: np.ndarray, path: Path) -> None:
    """Export the step, and train in ONNX Runtime with other parameters, rate and batch size."""
    dynamic = {"x": {0: "batch"}, "y": {0: "batch"}}
    tracer.onnx.export(step, (x[:BATCH], y[:BATCH]), path, dynamic_shapes=dynamic)
    session = open_checked(path)
    names = [value.name for value in session.get_inputs()]
    model.load_state_dict(network().state_dict())
    optimizer.param_groups[0]["lr"] = 0.05
    state = training_state(model, optimizer)
    ours, theirs = [], []
    for pixels, labels in zip(np.split(x[:500], 10), np.split(y[:500], 10), strict=True):
        inputs = zip(names, [*state, pixels, labels], strict=True)
        loss, *updated = session.run(None, dict(inputs))
        state[: len(updated)] = updated
        theirs.append(loss)
        ours.append(np.array(step(pixels, labels)))
    compare("ten training steps", [*ours, *training_state(model, optimizer)], [*theirs, *state])


def training_state(model: nn.Module, optimizer: optim.Optimizer) -> list[np.ndarray]:
    """Copies of parameters, momentum buffers and numbers, in the order of the exported step's inputs."""
    parameters = list(model.parameters())
    buffers = [optimizer.state[parameter]["momentum_buffer"] for parameter in parameters]
    group = optimizer.param_groups[0]
    return [
        *(np.array(tensor.detach()) for tensor in (*parameters, *buffers)),
        *(np.array(group[option]) for option in ("momentum", "lr")),
    ]


def open_checked(path: Path) -> onnxruntime.InferenceSession:
    """Have onnx.checker judge the file, and open it in ONNX Runtime."""
    onnx.checker.check_model(path, full_check=True)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def compare(what: str, ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    """Programs that add in another order agree to float32's accuracy, not to the bit."""
    for mine, yours in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(yours, mine, rtol=1e-4, atol=1e-5, err_msg=what, strict=True)
    off = max(np.abs(a - b).max() for a, b in zip(ours, theirs, strict=True))
    print(f"{what}: onnx.checker accepts the file, ONNX Runtime agrees to {off:.0e}")


def draw(losses: list[float], path: Path) -> None:
    """Draw the loss of every step, and its mean over every epoch."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    means = np.reshape(losses, (EPOCHS, -1)).mean(axis=1)
    axes.semilogy(losses, color="lightsteelblue", linewidth=0.6, label="step")
    axes.semilogy(np.repeat(means, len(losses) // EPOCHS), label="mean of the epoch")
    axes.legend()
    axes.set(xlabel="step", ylabel="cross-entropy", title="Training on handwritten digits")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
