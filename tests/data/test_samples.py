from dataclasses import replace

import pytest
import torch
from torch import Tensor

from funcattn.data import Batch, Sample, collate


def made(
    n: int, generator: torch.Generator, *, m: int | None = None, labels: bool = False
) -> Sample:
    """A sample of n points of the plane with 3 input and 2 output channels."""
    return Sample(
        positions=torch.rand(n, 2, generator=generator),
        values=torch.rand(n, 3, generator=generator),
        target=torch.randint(1, 9, (n,), generator=generator)
        if labels
        else torch.rand(n, 2, generator=generator),
        weights=torch.rand(n, generator=generator),
        context=None if m is None else torch.rand(m, 2, generator=generator),
    )


def test_samples_of_one_size_are_stacked_without_a_mask(generator: torch.Generator) -> None:
    samples = [replace(made(6, generator, m=4), grid=(2, 3)) for _ in range(3)]
    batch = collate(samples)
    assert len(batch) == 3
    assert batch.mask is None
    assert batch.grid == (2, 3)
    for name in ("positions", "values", "target", "weights", "context"):
        stacked = torch.stack([getattr(sample, name) for sample in samples])
        assert torch.equal(getattr(batch, name), stacked), name


@pytest.mark.parametrize("labels", [False, True], ids=["fields", "labels"])
def test_shorter_samples_are_padded_with_zeros_and_masked(
    labels: bool, generator: torch.Generator
) -> None:
    sizes = [5, 1, 7]
    samples = [made(n, generator, labels=labels) for n in sizes]
    batch = collate(samples)
    assert batch.mask is not None
    assert batch.mask.tolist() == [[place < n for place in range(7)] for n in sizes]
    for name in ("positions", "values", "target", "weights"):
        padded: Tensor = getattr(batch, name)
        assert padded.shape[:2] == (3, 7)
        assert padded.dtype == getattr(samples[0], name).dtype
        for row, sample, n in zip(padded, samples, sizes, strict=True):
            assert torch.equal(row[:n], getattr(sample, name)), name
            assert not row[n:].any(), name


def test_targets_may_have_any_axes_after_the_points(generator: torch.Generator) -> None:
    samples = [
        replace(made(n, generator), target=torch.rand(n, 4, 2, generator=generator)) for n in (3, 5)
    ]
    batch = collate(samples)
    assert batch.target.shape == (2, 5, 4, 2)
    assert torch.equal(batch.target[0, :3], samples[0].target)


def test_what_samples_do_not_have_the_batch_does_not(generator: torch.Generator) -> None:
    bare = replace(made(4, generator), values=None, weights=None)
    batch = collate([bare, bare])
    assert (batch.values, batch.weights, batch.context, batch.grid) == (None, None, None, None)


def test_moving_a_batch_changes_only_floating_point_tensors(generator: torch.Generator) -> None:
    batch = collate([made(n, generator, labels=True, m=3) for n in (2, 4)])
    moved = batch.to("cpu", torch.float64)
    assert moved.positions.dtype == torch.float64
    assert moved.context is not None
    assert moved.context.dtype == torch.float64
    assert moved.target.dtype == torch.int64
    assert moved.mask is not None
    assert moved.mask.dtype == torch.bool
    assert batch.to("cpu").positions.dtype == torch.float32
    assert torch.equal(moved.positions.float(), batch.positions)
    assert moved.grid == batch.grid


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="samples: expected at least one"):
        collate([])


@pytest.mark.parametrize("name", ["values", "weights", "context"])
@pytest.mark.parametrize("first", [0, 1], ids=["in the first only", "in the second only"])
def test_all_samples_of_a_batch_have_a_thing_or_none_has(
    name: str, first: int, generator: torch.Generator
) -> None:
    full = made(4, generator, m=3)
    samples = [full, replace(full, **{name: None})]
    with pytest.raises(ValueError, match=f"{name}: expected it in all samples"):
        collate(samples if first == 0 else samples[::-1])


@pytest.mark.parametrize("name", ["positions", "values", "target"])
def test_channels_that_differ_are_named(name: str, generator: torch.Generator) -> None:
    one, other = made(4, generator), made(5, generator)
    other = replace(other, **{name: torch.rand(5, 7, generator=generator)})
    with pytest.raises(ValueError, match=rf"{name}: expected one shape after .* \(5, 7\)"):
        collate([one, other])


def test_contexts_of_different_sizes_are_refused(generator: torch.Generator) -> None:
    samples = [made(4, generator, m=m) for m in (3, 5)]
    with pytest.raises(ValueError, match=r"context: expected one shape in .*\(3, 2\), \(5, 2\)"):
        collate(samples)


def test_grids_of_one_batch_are_the_same(generator: torch.Generator) -> None:
    samples = [replace(made(6, generator), grid=grid) for grid in ((2, 3), (3, 2))]
    with pytest.raises(ValueError, match="grid: expected one for all samples"):
        collate(samples)


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("name", ["values", "target", "weights"])
def test_a_sample_has_one_row_per_point(name: str, generator: torch.Generator) -> None:
    sample = made(4, generator)
    shorter = getattr(sample, name)[:3]
    with pytest.raises(
        ValueError, match=f"{name}: expected one row for each of 4 positions, got 3"
    ):
        replace(sample, **{name: shorter})


def test_a_grid_has_as_many_points_as_the_sample(generator: torch.Generator) -> None:
    with pytest.raises(ValueError, match=r"grid: expected .* positions, 4, got \(2, 3\)"):
        replace(made(4, generator), grid=(2, 3))


def test_a_batch_is_a_dataclass_that_does_not_change(generator: torch.Generator) -> None:
    batch = collate([made(4, generator)])
    assert isinstance(batch, Batch)
    with pytest.raises(AttributeError):
        batch.grid = (2, 2)  # type: ignore[misc]
