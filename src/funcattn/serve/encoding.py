"""Arrays in JSON: lists of numbers, or base64 of their bytes."""

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from funcattn.arrays import Array
from funcattn.documents import parse_json

_TYPES = {"float32": "<f4", "float64": "<f8", "int32": "<i4", "int64": "<i8", "bool": "|b1"}
_MOST_AXES = 4


def parse_body(body: bytes) -> dict[str, Any]:
    """The names and values of a request."""
    found: dict[str, Any] = parse_json(
        body, {...: Any}, where="body", advice="send an object as /docs describes it"
    )
    return found


def numbers(name: str, given: Any, kinds: str = "fiu") -> Array:
    """An array from a request.

    >>> numbers("u", [[1, 2.5]])
    array([[1. , 2.5]])
    >>> numbers("u", {"dtype": "float32", "shape": [2], "data": "AACAPwAAAEA="})
    array([1., 2.], dtype=float32)

    Raises:
        ValueError: it is none.
    """
    if isinstance(given, Mapping):
        found = _from_base64(name, given)
    else:
        try:
            found = np.asarray(given)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"{name}: expected rows of one length, got {error}") from error
    if found.dtype.kind not in kinds or found.ndim > _MOST_AXES:
        raise ValueError(
            f"{name}: expected an array of numbers, got {found.dtype} of shape {found.shape}"
        )
    return found


def _from_base64(name: str, given: Mapping[str, Any]) -> Array:
    kind, shape, data = (given.get(key) for key in ("dtype", "shape", "data"))
    if (
        kind not in _TYPES
        or not isinstance(shape, list)
        or len(shape) > _MOST_AXES
        or not all(type(length) is int and 0 <= length < 2**40 for length in shape)
        or not isinstance(data, str)
    ):
        raise ValueError(
            f"{name}: expected lists of numbers, or an object with dtype ({', '.join(_TYPES)}), "
            "shape (a list of lengths) and data (base64), got another"
        )
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{name}: expected data in base64, got something else: {error}") from error
    dtype = np.dtype(_TYPES[kind])
    if len(raw) != math.prod(shape) * dtype.itemsize:
        raise ValueError(
            f"{name}: expected {math.prod(shape) * dtype.itemsize} bytes for {kind} of shape "
            f"{tuple(shape)}, got {len(raw)}"
        )
    return np.frombuffer(raw, dtype).reshape(shape)


def with_arrays(value: Any) -> Any:
    """The same with arrays in the place of their base64 form."""
    if isinstance(value, Mapping):
        if "data" in value and "dtype" in value:
            return _from_base64("parameters", value)
        return {name: with_arrays(each) for name, each in value.items()}
    return value


def encoded(value: Any, *, packed: bool) -> Any:
    """A reply as plain values; packed: arrays as base64, in single precision."""
    if isinstance(value, Mapping):
        return {name: encoded(each, packed=packed) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        return _to_base64(value) if packed else value.tolist()
    if isinstance(value, list | tuple):
        return [encoded(each, packed=packed) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def _to_base64(array: Array) -> dict[str, Any]:
    name = {"f": "float32", "i": "int32", "u": "int32", "b": "bool"}[array.dtype.kind]
    data = np.ascontiguousarray(array, _TYPES[name])
    return {
        "dtype": name,
        "shape": list(array.shape),
        "data": base64.b64encode(data.tobytes()).decode("ascii"),
    }
