"""Navier-Stokes flow on the periodic unit square: w_t + u . grad w = nu Laplace w + f."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.fft import fft, ifft, irfft, rfft

from funcattn.arrays import Floats
from funcattn.pde.errors import NotConvergedError
from funcattn.pde.random_fields import periodic_square

Spectrum = npt.NDArray[np.complex128]

STABLE_COURANT = 2.0 * 2.0**0.5
"""Largest Courant number at which the fourth-order Runge-Kutta method does not amplify a wave."""


def diagonal_forcing(points_per_axis: int, *, amplitude: float = 0.1) -> Floats:
    """Return the force amplitude (sin 2 pi (x + y) + cos 2 pi (x + y)) of the benchmark, (n, n).

    Example:
        >>> diagonal_forcing(4).round(3)[0]
        array([ 0.1,  0.1, -0.1, -0.1])
    """
    x = np.arange(points_per_axis) / points_per_axis
    phase = 2.0 * np.pi * (x[:, None] + x[None, :])
    force: Floats = amplitude * (np.sin(phase) + np.cos(phase))
    return force


def solve(
    initial: npt.NDArray[np.floating],
    forcing: float | npt.NDArray[np.floating] = 0.0,
    *,
    viscosity: float = 1e-5,
    times: Sequence[float] = tuple(map(float, range(1, 21))),
    step: float = 0.05,
    courant: float = 2.0,
    max_steps: int = 100_000,
    progress: Callable[[float], None] | None = None,
) -> Floats:
    """Solve w_t + u . grad w = nu Laplace w + f with period 1 in x and y, from w at time 0.

    w is the vorticity, u = (psi_y, -psi_x) the velocity and -Laplace psi = w. The mean of w has no
    effect on the flow: it is carried along, and only the mean of f changes it.

    Method: Fourier-Galerkin. Waves with |k1|, |k2| < n / 3 are kept, also of the initial field and
    of f. Products are taken on the n x n points, where those waves do not alias (the 2/3 rule).
    Advection is (d_yy - d_xx)(u1 u2) + d_xy(u1^2 - u2^2), which takes four real transforms. Time
    steps use the classical Runge-Kutta method of order 4 after an exact integrating factor for
    viscosity. All arithmetic is in double precision.

    The step is `step`, or shorter when the flow is fast: each step is chosen such that the Courant
    number 2 pi k_max (|u1| + |u2|) dt is at most `courant` everywhere, and steps end exactly at the
    snapshots. The benchmark's force speeds its flow up about tenfold, so that one step for all
    times would be wasteful at the start or unstable at the end.

    Order: 4 in the step. In space, faster than any power of 1 / n once the field is smooth on the
    grid; the error comes from the waves left out.

    Limits: for the benchmark's flows the grid dominates the error. Relative to 512 points, the
    error is 1 % with 64 points, 0.2 % with 128 and 0.006 % with 256 at t = 1, and 7 %, 2 % and
    0.3 % at t = 20. The default steps add at most 3e-4, 5e-5 and 3e-5. (Single precision would add
    3e-5 and save less than half of the time.) Flows are solved one by one, so that no result
    depends on the rest of the batch.

    Args:
        initial: w at time 0 at the points i / n, first axis x, shape (..., n, n), n >= 4.
        forcing: f, a number or an array of shape (..., n, n), constant in time.
        viscosity: nu, zero or positive.
        times: times of the snapshots, increasing, zero or positive.
        step: longest time step.
        courant: largest Courant number, at most 2 sqrt(2), where the method becomes unstable.
        max_steps: time steps allowed per flow.
        progress: called with the share of a flow's time that is done, 0 to 1.

    Returns:
        w at the points and times, shape (..., times, n, n). Leading axes are independent flows, and
        those of initial and forcing broadcast.

    Raises:
        ValueError: an argument is not as described above.
        NotConvergedError: the flow became too fast within one step, or needs more than max_steps.

    Example:
        >>> x = np.arange(8) / 8
        >>> vortices = np.cos(2 * np.pi * x)[:, None] + np.cos(2 * np.pi * x)  # decays
        >>> end = solve(vortices, viscosity=0.01, times=[1.0])[-1]
        >>> bool(np.allclose(end, vortices * np.exp(-4 * np.pi**2 * 0.01), rtol=1e-13))
        True
    """
    w = np.asarray(initial, dtype=np.float64)
    if w.ndim < 2 or w.shape[-1] != w.shape[-2]:
        raise ValueError(
            f"expected a square grid of vorticity, shape (..., n, n), got {w.shape}: "
            "resample it to as many points along x as along y"
        )
    n = w.shape[-1]
    if n < 4:
        raise ValueError(f"expected at least 4 points per axis, got {n}: fewer resolve no wave")
    f = np.asarray(forcing, dtype=np.float64)
    if f.ndim > 0 and f.shape[-2:] != (n, n):
        raise ValueError(
            f"expected forcing that is a number or has shape (..., {n}, {n}), got {f.shape}: "
            "give it at the points of the initial field"
        )
    if not (np.isfinite(w).all() and np.isfinite(f).all()):
        raise ValueError(
            "expected finite initial field and forcing, got NaN or infinity: "
            "check where they were made"
        )
    if not 0.0 <= viscosity < np.inf:
        raise ValueError(f"expected a finite viscosity >= 0, got {viscosity}: try 1e-5")
    moments = np.asarray(times, dtype=np.float64)
    if (
        moments.ndim != 1
        or not moments.size
        or not np.isfinite(moments).all()
        or moments[0] < 0.0
        or (np.diff(moments) <= 0.0).any()
    ):
        raise ValueError(
            f"expected one or more finite times that increase from zero or later, got {times}: "
            "sort them"
        )
    if not 0.0 < step < np.inf:
        raise ValueError(f"expected a finite step > 0, got {step}: try 0.05")
    if not 0.0 < courant <= STABLE_COURANT:
        raise ValueError(
            f"expected 0 < courant <= {STABLE_COURANT:.3f}, got {courant}: try 2, "
            "a larger one is unstable"
        )
    # f may be a number, which has no axes of points.
    f = np.broadcast_to(f, np.broadcast_shapes(f.shape, w.shape))
    w = np.broadcast_to(w, f.shape)
    frames = np.empty((*w.shape[:-2], len(moments), n, n))
    for flow in np.ndindex(w.shape[:-2]):
        try:
            _solve_one(
                w[flow],
                f[flow],
                viscosity,
                moments,
                step,
                courant,
                max_steps,
                frames[flow],
                progress,
            )
        except NotConvergedError as error:
            raise NotConvergedError(f"{error}{f' (flow {flow})' if flow else ''}") from None
    return frames


def sample(
    *,
    points: int = 256,
    keep: int = 64,
    frames: int = 20,
    viscosity: float = 1e-5,
    scale: float = 2.0**0.5 * 7.0**1.5,
    step: float = 0.05,
    courant: float = 2.0,
    rng: np.random.Generator,
) -> dict[str, Floats]:
    """Draw one flow of the benchmark, random vorticity under a force: one frame per time unit.

    It is solved on `points` points per axis, of which `keep`, equally spaced, are returned; frames
    are at t = 1, 2, ..., `frames`. The random field keeps its coefficients when `points` changes,
    so other resolutions show the same flow up to the detail they resolve.

    Relative to the benchmark: its flows were computed with steps of 1e-4, of order 1 in the
    advection. The amplitude of its initial field is uncertain by a factor of sqrt(2): `scale` is
    that of `random_fields.periodic_square`, whose docstring lists the other values in use. Late
    frames are governed by the force.

    Raises:
        ValueError: `keep` does not divide `points`, or as for `solve`.
        NotConvergedError: as for `solve`; it did not occur in 100 samples at 64 points.

    Example:
        >>> flow = sample(points=16, keep=8, frames=2, rng=np.random.default_rng(0))
        >>> flow["vorticity"].shape  # (frames, x, y)
        (2, 8, 8)
    """
    if keep < 1 or points % keep:
        raise ValueError(f"keep: expected a divisor of points = {points}, got {keep}")
    if frames < 1:
        raise ValueError(f"expected at least 1 frame, got {frames}")
    vorticity = solve(
        periodic_square(points, scale=scale, rng=rng),
        diagonal_forcing(points),
        viscosity=viscosity,
        times=[float(t) for t in range(1, frames + 1)],
        step=step,
        courant=courant,
    )
    every = slice(None, None, points // keep)
    return {"vorticity": np.ascontiguousarray(vorticity[:, every, every])}


# The checks in the loop detect and report a flow that overflows.
@np.errstate(over="ignore", invalid="ignore")
def _solve_one(
    initial: Floats,
    forcing: Floats,
    viscosity: float,
    times: Floats,
    step: float,
    courant: float,
    max_steps: int,
    frames: Floats,
    progress: Callable[[float], None] | None,
) -> None:
    """Write w at the times into `frames`.

    Spectra have all n rows k1, in the order of the transform, but only the columns k2 = 0 .. k_max.
    Rows that are not kept are zero, because the multipliers below are zero there.
    """
    n = len(initial)
    k_max = (n - 1) // 3
    k1 = ((np.arange(n) + n // 2) % n - n // 2)[:, None]
    k2 = np.arange(k_max + 1)[None, :]
    kept = abs(k1) <= k_max
    square = k1**2 + k2**2
    to_velocity = kept * 1j * np.stack(np.broadcast_arrays(k2, -k1)) / (2 * np.pi * square.clip(1))
    to_advection = 4 * np.pi**2 * kept * np.stack([k1**2 - k2**2, -k1 * k2])

    def to_waves(field: Floats) -> Spectrum:
        # Columns are dropped between the two passes; a transform of both axes could not do that.
        rows = rfft(field, norm="forward")[..., : k_max + 1]
        waves: Spectrum = fft(rows, axis=-2, norm="forward")
        return waves

    def to_points(waves: Spectrum) -> Floats:
        columns = ifft(waves, axis=-2, norm="forward")
        field: Floats = irfft(columns, n, norm="forward", overwrite_x=True)
        return field

    force = to_waves(forcing) * kept
    products = np.empty((2, n, n))

    def slope(waves: Spectrum) -> tuple[Spectrum, float]:
        """Return dw/dt without viscosity, and the Courant number of a unit step."""
        u1, u2 = to_points(to_velocity * waves)
        speed = (abs(u1) + abs(u2)).max()
        np.multiply(u1, u2, out=products[0])
        np.multiply(u1 - u2, u1 + u2, out=products[1])
        parts = to_waves(products)
        parts *= to_advection
        parts[0] += parts[1]
        parts[0] += force
        return parts[0], 2 * np.pi * k_max * float(speed)

    w = to_waves(initial) * kept
    first, rate = slope(w)
    time, taken = 0.0, 0
    for frame, moment in zip(frames, times, strict=True):
        while time < moment:
            # Slightly less, so that rounding of `time` does not cost a step.
            ahead = (moment - time) * max(1.0 / step, rate / courant) - 1e-9
            if not taken + ahead <= max_steps:
                raise NotConvergedError(
                    f"expected to reach time {moment} within {max_steps} steps, got to {time:.3g} "
                    f"in {taken} and need {ahead:.3g} more: lower the resolution or allow more"
                )
            count = max(1, int(np.ceil(ahead)))
            h = (moment - time) / count
            time += h
            taken += 1
            # Decay by viscosity alone over half a step.
            rest = -2 * np.pi**2 * viscosity * h
            decay = np.exp(rest * k1**2) * np.exp(rest * k2**2)
            half = decay * w
            second, _ = slope(half + (h / 2) * (decay * first))
            third, _ = slope(half + (h / 2) * second)
            full = decay * half
            fourth, _ = slope(full + h * (decay * third))
            w = full + (h / 6) * (decay * (decay * first + 2 * (second + third)) + fourth)
            first, rate = slope(w)
            if progress is not None:
                progress(time / float(times[-1]))
            if not h * rate <= STABLE_COURANT:
                raise NotConvergedError(
                    f"expected a Courant number of at most {STABLE_COURANT:.3f}, got "
                    f"{h * rate:.3g} at time {time:.3g} after a step of {h:.3g}: "
                    "the flow speeds up within a step; try a smaller step"
                )
        frame[:] = to_points(w)
