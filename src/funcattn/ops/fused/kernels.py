"""The three things that are done with a basis at points, as Triton programs for a GPU.

    Phi = softmax(y S + s)                              `_basis`: in registers, never in memory
    A^T w Phi,  w^T Phi                                 `sums`
    Phi M                                               `lifted`
    the gradient of y, S and s from that of Phi         `gradients`

A program does one head of one sample and some blocks of points, one after the other. Sums over
points go into a place of its own, and the few of these are added afterwards, always in the same
order. Products are done in the dtype of y, sums and softmax in float32 (float64 for float64).

Names: P points of a block, K channels of y in all and K_BLOCK at once, G functions and G_BLOCK the
power of two above, F channels of a field. Rows beyond the last point and columns beyond the last
function or channel are loaded as zeros and not stored.
"""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def _tile(start, rows, row_stride, real, columns, count):
    """Rows of a matrix whose columns stand side by side; 0 beyond its end."""
    at = start + rows.to(tl.int64)[:, None] * row_stride + columns[None, :]
    return tl.load(at, mask=real[:, None] & (columns < count)[None, :], other=0.0)


@triton.jit
@no_type_check
def _product(a, b, sums, PRECISION: tl.constexpr):
    """sums + a b, in the dtype of a."""
    return tl.dot(a, b.to(a.dtype), sums, input_precision=PRECISION, out_dtype=sums.dtype)


@triton.jit
@no_type_check
def _basis(
    y, y_stride, weight, bias, rows, real,
    K: tl.constexpr, G: tl.constexpr, P: tl.constexpr,
    K_BLOCK: tl.constexpr, G_BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Phi (P, G_BLOCK) of one head; 0 beyond the last point and the last function."""
    functions = tl.arange(0, G_BLOCK)
    exists = functions < G
    scores = tl.zeros((P, G_BLOCK), dtype=weight.dtype.element_ty)
    for first in range(0, K, K_BLOCK):
        channels = first + tl.arange(0, K_BLOCK)
        here = _tile(y, rows, y_stride, real, channels, K)
        scores = _product(
            here, _tile(weight, channels, G, channels < K, functions, G), scores, PRECISION
        )
    scores += tl.load(bias + functions, mask=exists, other=0.0)[None, :]
    scores = tl.where(exists[None, :], scores, float("-inf"))
    raised = tl.exp(scores - tl.max(scores, 1)[:, None])
    phi = raised / tl.sum(raised, 1)[:, None]
    return tl.where(real[:, None], phi, 0.0)


@triton.jit
@no_type_check
def sums(
    y, y_sample, y_row, y_head, weight, bias,
    field, field_sample, field_row, field_head, point_weights, weights_sample,
    moments, mass, n, heads, blocks,
    K: tl.constexpr, G: tl.constexpr, F: tl.constexpr, WEIGHTED: tl.constexpr,
    P: tl.constexpr, K_BLOCK: tl.constexpr, G_BLOCK: tl.constexpr, F_BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """moments (parts b h F G) = A^T w Phi and mass (parts b h G) = w^T Phi.

    Program (part of the points, head of a sample, block of channels of A).
    """
    part, place, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sample, head = (place // heads).to(tl.int64), (place % heads).to(tl.int64)
    y += sample * y_sample + head * y_head
    field += sample * field_sample + head * field_head
    weight += head * K * G
    bias += head * G
    functions, channels = tl.arange(0, G_BLOCK), tile * F_BLOCK + tl.arange(0, F_BLOCK)
    summed = tl.zeros((F_BLOCK, G_BLOCK), dtype=weight.dtype.element_ty)
    weighed = tl.zeros((G_BLOCK,), dtype=weight.dtype.element_ty)
    for block in range(blocks):
        rows = (part * blocks + block) * P + tl.arange(0, P)
        real = rows < n
        phi = _basis(y, y_row, weight, bias, rows, real, K, G, P, K_BLOCK, G_BLOCK, PRECISION)
        if WEIGHTED:
            phi *= tl.load(point_weights + sample * weights_sample + rows, real, other=0.0)[:, None]
        here = _tile(field, rows, field_row, real, channels, F)
        summed = _product(tl.trans(here), phi, summed, PRECISION)
        weighed += tl.sum(phi, 0)
    out = (part * tl.num_programs(1) + place).to(tl.int64)
    at = moments + out * F * G + channels[:, None] * G + functions[None, :]
    tl.store(at, summed, mask=(channels < F)[:, None] & (functions < G)[None, :])
    if tile == 0:
        tl.store(mass + out * G + functions, weighed, mask=functions < G)


@triton.jit
@no_type_check
def lifted(
    y, y_sample, y_row, y_head, weight, bias, coefficients, out, n, heads,
    K: tl.constexpr, G: tl.constexpr, F: tl.constexpr,
    P: tl.constexpr, K_BLOCK: tl.constexpr, G_BLOCK: tl.constexpr, F_BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """out (b n h F) = Phi M, M (b h G F). Program (block of points, head, block of channels)."""
    place, tile = tl.program_id(1), tl.program_id(2)
    sample, head = (place // heads).to(tl.int64), (place % heads).to(tl.int64)
    functions, channels = tl.arange(0, G_BLOCK), tile * F_BLOCK + tl.arange(0, F_BLOCK)
    rows = tl.program_id(0) * P + tl.arange(0, P)
    real = rows < n
    phi = _basis(
        y + sample * y_sample + head * y_head, y_row, weight + head * K * G, bias + head * G,
        rows, real, K, G, P, K_BLOCK, G_BLOCK, PRECISION,
    )  # fmt: skip
    by = _tile(coefficients + place.to(tl.int64) * G * F, functions, F, functions < G, channels, F)
    values = tl.zeros((P, F_BLOCK), dtype=weight.dtype.element_ty)
    values = _product(phi.to(out.dtype.element_ty), by, values, PRECISION)
    at = sample * n + rows.to(tl.int64)
    at = out + (at[:, None] * heads + head) * F + channels[None, :]
    tl.store(at, values.to(out.dtype.element_ty), mask=real[:, None] & (channels < F)[None, :])


@triton.jit
@no_type_check
def _toward_basis(
    d_phi, field, field_row, rows, real, d_sums,
    F: tl.constexpr, G: tl.constexpr, F_BLOCK: tl.constexpr, G_BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """d_phi + A B, with A (n F) and B (F G)."""
    functions = tl.arange(0, G_BLOCK)
    for first in range(0, F, F_BLOCK):
        channels = first + tl.arange(0, F_BLOCK)
        here = _tile(field, rows, field_row, real, channels, F)
        by = _tile(d_sums, channels, G, channels < F, functions, G)
        d_phi = _product(here, by, d_phi, PRECISION)
    return d_phi


@triton.jit
@no_type_check
def gradients(
    y, y_sample, y_row, y_head, weight, bias,
    field, field_sample, field_row, field_head, point_weights, weights_sample, d_moments, d_mass,
    d_values, values_sample, values_row, values_head, coefficients,
    d_y, d_weight, d_bias, n, heads, blocks,
    K: tl.constexpr, G: tl.constexpr, F: tl.constexpr, E: tl.constexpr,
    WEIGHTED: tl.constexpr, LIFTED: tl.constexpr,
    P: tl.constexpr, K_BLOCK: tl.constexpr, G_BLOCK: tl.constexpr, F_BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """From those of the sums and, where LIFTED, from that of the values Phi M.

        d_phi    = w (A d_moments + d_mass) + d_values M^T
        d_scores = Phi (d_phi - sum over functions of Phi d_phi)
        d_y (b n h K) = d_scores S^T,  d_weight (parts b h K G) = y^T d_scores,  d_bias likewise

    M^T is given, (b h E G). Program (part of the points, head of a sample, block of channels of y).
    """
    part, place, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sample, head = (place // heads).to(tl.int64), (place % heads).to(tl.int64)
    y += sample * y_sample + head * y_head
    field += sample * field_sample + head * field_head
    weight += head * K * G
    bias += head * G
    functions, channels = tl.arange(0, G_BLOCK), tile * K_BLOCK + tl.arange(0, K_BLOCK)
    exists = functions < G
    of_mass = tl.load(d_mass + place.to(tl.int64) * G + functions, mask=exists, other=0.0)
    by = _tile(weight, channels, G, channels < K, functions, G)
    summed = tl.zeros((K_BLOCK, G_BLOCK), dtype=weight.dtype.element_ty)
    of_bias = tl.zeros((G_BLOCK,), dtype=weight.dtype.element_ty)
    for block in range(blocks):
        rows = (part * blocks + block) * P + tl.arange(0, P)
        real = rows < n
        phi = _basis(y, y_row, weight, bias, rows, real, K, G, P, K_BLOCK, G_BLOCK, PRECISION)
        d_phi = tl.zeros((P, G_BLOCK), dtype=weight.dtype.element_ty) + of_mass[None, :]
        d_phi = _toward_basis(
            d_phi, field, field_row, rows, real, d_moments + place.to(tl.int64) * F * G,
            F, G, F_BLOCK, G_BLOCK, PRECISION,
        )  # fmt: skip
        if WEIGHTED:
            d_phi *= tl.load(point_weights + sample * weights_sample + rows, real, other=0.0)[
                :, None
            ]
        if LIFTED:
            d_phi = _toward_basis(
                d_phi, d_values + sample * values_sample + head * values_head, values_row, rows,
                real, coefficients + place.to(tl.int64) * E * G,
                E, G, F_BLOCK, G_BLOCK, PRECISION,
            )  # fmt: skip
        d_scores = phi * (d_phi - tl.sum(phi * d_phi, 1)[:, None])
        of_bias += tl.sum(d_scores, 0)
        here = _tile(y, rows, y_row, real, channels, K)
        summed = _product(tl.trans(here), d_scores, summed, PRECISION)
        back = tl.zeros((P, K_BLOCK), dtype=weight.dtype.element_ty)
        back = _product(d_scores.to(here.dtype), tl.trans(by), back, PRECISION)
        at = sample * n + rows.to(tl.int64)
        at = d_y + (at[:, None] * heads + head) * K + channels[None, :]
        tl.store(at, back.to(here.dtype), mask=real[:, None] & (channels < K)[None, :])
    out = (part * tl.num_programs(1) + place).to(tl.int64)
    at = d_weight + out * K * G + channels[:, None] * G + functions[None, :]
    tl.store(at, summed, mask=(channels < K)[:, None] & exists[None, :])
    if tile == 0:
        tl.store(d_bias + out * G + functions, of_bias, mask=exists)
