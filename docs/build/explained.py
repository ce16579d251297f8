"""The pictures of the explanation: python docs/build/explained.py

One example throughout, that of the interactive page: on a ring, keys are waves and queries are the
same waves moved by a fifth, so that the map is a shift.
"""

import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "src"))

from funcattn import functional_attention  # noqa: E402
from funcattn.viz.saving import write_figure  # noqa: E402

PICTURES = ROOT / "docs" / "pictures" / "explained"
SHIFT, WAVES = 0.2, 7
ORANGE, BLUE = "#d1660a", "#2463b0"


def waves(x: torch.Tensor) -> torch.Tensor:
    """The channels of a key at places (n,): (n, 15)."""
    angle = 2 * torch.pi * x[:, None] * torch.arange(1, WAVES + 1)
    return torch.cat([torch.ones_like(x)[:, None], angle.sin(), angle.cos()], -1)


def value(x: torch.Tensor) -> torch.Tensor:
    """The field that is carried, (n, 1)."""

    def bump(centre: float, width: float) -> torch.Tensor:
        return (((2 * torch.pi * (x - centre)).cos() - 1) / width).exp()

    return (bump(0.3, 0.05) - 0.6 * bump(0.65, 0.15))[:, None]


def basis(x: torch.Tensor, bases: int = 16, temperature: float = 0.15) -> torch.Tensor:
    """A softmax of a linear map of (cos, sin) over the temperature, (n, g)."""
    centres = (torch.arange(bases, dtype=x.dtype) + 0.5) / bases
    scores = (bases / (2 * torch.pi)) ** 2 * (2 * torch.pi * (x[:, None] - centres)).cos()
    return (scores / temperature).softmax(-1)


def attended(
    x: torch.Tensor, ridge: float = 1e-4, weights: torch.Tensor | None = None, **basis_: float
):
    """What comes out at the places, (n,), and the map (g, g)."""
    functions = basis(x, **basis_)[None, None]
    q, k, v = (part[None, None] for part in (waves(x - SHIFT), waves(x), value(x)))
    out, found = functional_attention(
        q, k, v, functions, functions, ridge=ridge, return_map=True,
        weights=None if weights is None else weights[None],
    )  # fmt: skip
    return out[0, 0, :, 0], found[0, 0]


def places(n: int = 128) -> torch.Tensor:
    """Evenly spaced points of the ring."""
    return torch.arange(n, dtype=torch.float64) / n


def relative(found: torch.Tensor, truth: torch.Tensor) -> float:
    """The error over the size."""
    return float((found - truth).norm() / truth.norm())


def in_four_steps() -> Figure:
    """Fields and bases, coefficients, the map, the output."""
    x = places()
    functions = basis(x)
    out, found = attended(x)
    averages = functions.T @ value(x) / functions.sum(0)[:, None]
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    axes = figure.subplots(2, 2)
    for function in functions.T:
        axes[0, 0].plot(x, function)
    axes[0, 0].set_title("1. a basis: 16 functions that sum to one at each point")
    centres = (torch.arange(16) + 0.5) / 16
    axes[0, 1].plot(x, value(x), color="grey", label="the value at 128 points")
    axes[0, 1].bar(
        centres, averages[:, 0], 0.05, color=BLUE, alpha=0.5, label="its 16 coefficients"
    )
    axes[0, 1].set_title("2. project: the mean under each function")
    most = float(found.abs().max())
    axes[1, 0].imshow(found, cmap="coolwarm", vmin=-most, vmax=most, aspect="equal")
    axes[1, 0].set_title("3. solve: the map from keys to queries, here a shift")
    axes[1, 1].plot(x, value(x), color="grey", label="the value")
    axes[1, 1].plot(x, value(x - SHIFT), "k--", label="the value, moved by a fifth")
    axes[1, 1].plot(x, out, color=ORANGE, linewidth=2, label="what comes out")
    axes[1, 1].set_title("4. lift: the carried coefficients times the functions")
    for axis in (axes[0, 1], axes[1, 1]):
        axis.legend(fontsize=8)
    return figure


def projections() -> Figure:
    """The size of the output over the number of points, by projection."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axis = figure.subplots()
    counts = [32, 64, 128, 256, 512, 1024, 2048, 4096]
    for name, ridge, style in (("average", 0.03, "o-"), ("transpose", 0.03, "s--")):
        sizes = []
        for n in counts:
            x = places(n)
            functions = basis(x)[None, None]
            fields = (part[None, None] for part in (waves(x - SHIFT), waves(x), value(x)))
            out = functional_attention(*fields, functions, functions, ridge=ridge, projection=name)
            sizes.append(float(out.square().mean().sqrt()))
        axis.plot(counts, sizes, style, label=f'projection="{name}"')
    axis.set(xscale="log", yscale="log", xlabel="points", ylabel="root mean square of the output")
    axis.grid(visible=True, alpha=0.3)
    axis.legend()
    return figure


def ridges() -> Figure:
    """Condition number and error over the ridge."""
    x, strengths = places(), torch.logspace(-8, 2, 41).tolist()
    functions = basis(x)
    k = functions.T @ waves(x) / functions.sum(0)[:, None]
    gram = k @ k.T
    conditions, errors = [], []
    for ridge in strengths:
        conditions.append(float(torch.linalg.cond(gram + ridge * torch.eye(16, dtype=x.dtype))))
        errors.append(relative(attended(x, ridge)[0], value(x - SHIFT)[:, 0]))
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.loglog(strengths, conditions, color=BLUE)
    left.set(xlabel="ridge", ylabel="condition number of the system")
    right.semilogx(strengths, errors, color=ORANGE)
    right.set(xlabel="ridge", ylabel="relative error of the shift", ylim=(0, 1))
    for axis in (left, right):
        axis.grid(visible=True, alpha=0.3)
    return figure


def weights() -> Figure:
    """The output from points that crowd on one side, without and with weights."""
    even = places()
    x = even + 0.12 * (2 * torch.pi * even).sin()
    spacing = 1 + 0.12 * 2 * torch.pi * (2 * torch.pi * even).cos()
    figure = Figure(figsize=(11, 2.8), layout="constrained")
    choices = {"without weights": None, "with weights": spacing}
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (name, given) in zip(axes, choices.items(), strict=True):
        few = {"bases": 8, "temperature": 0.4}
        fine = places(4096)
        truth, _ = attended(fine, **few)
        out, _ = attended(x, weights=given, **few)
        at = (x * 4096).round().long() % 4096
        axis.plot(fine, truth, "k--", label="4,096 even points")
        axis.plot(x % 1, out, ".", color=ORANGE, label="128 uneven points")
        axis.plot(x % 1, torch.full_like(x, -0.65), "|", color=BLUE, markersize=8)
        axis.set_title(f"{name}: {relative(out, truth[at]):.1%} off", fontsize=10)
    figure.axes[0].legend(fontsize=8)
    return figure


def main() -> None:
    """Write all of them."""
    for draw in (in_four_steps, projections, ridges, weights):
        write_figure(draw(), PICTURES / draw.__name__)


if __name__ == "__main__":
    main()
