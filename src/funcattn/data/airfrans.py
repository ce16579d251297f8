"""The folder of AirfRANS (Bonnet et al. 2022): read its cases, or write one's own in its layout.

manifest.json               lists of names: full_train, full_test, scarce_train, reynolds_train, ...
NAME/NAME_internal.vtu      nodes of the mesh: U (velocity), p (over density), nut (eddy viscosity)
                            and implicit_distance to the airfoil, negative in the fluid
NAME/NAME_aerofoil.vtp      outline of the airfoil: edges, and Normals that point into the body

A name is airFoil2D_SST_speed_incidence_digits; see `parse_name`. The public folder also has
NAME_freestream.vtp, the outer boundary, which no feature or target needs: it is neither read nor
written. Arrays here are those of `funcattn.pde.panel.sample`, by the same names.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from funcattn.arrays import Array, Indices
from funcattn.data.vtk_xml import VtkPoints, read_vtk, write_vtk
from funcattn.files import write_bytes
from funcattn.lazy import LazyModule

if TYPE_CHECKING:
    from scipy import spatial
else:
    spatial = LazyModule("scipy.spatial")

Split = Literal["full", "scarce", "reynolds", "aoa"]

VISCOSITY = 1.56e-5
"""Kinematic, of the air of the public set, in square metres per second."""
_NAME = re.compile(r"airFoil2D_SST(_-?[0-9]{1,9}(\.[0-9]{1,9})?){5,6}")
_NUMBERS = (
    *("stream", "speed", "reynolds", "incidence", "family", "digits"),
    *("lift", "drag", "transition", "separation", "iterations", "change", "averaged"),
)
"""Kept as field data in our own files: a name only has three decimals. Others have none."""
_SAME = 1e-7
"""Nodes closer than this are one: coordinates near 1 in single and in double precision are so far
apart at most, and the thinnest cells of the public meshes are twenty times thicker."""
_FARTHEST = 1e3
"""In chords. Public meshes went to 200 before they were cut."""


class CaseName(NamedTuple):
    """What a name says of a case."""

    speed: float  # of the stream
    incidence: float  # degrees
    digits: tuple[float, ...]  # camber, position, thickness; or lift, position, reflex, thickness


def case_name(speed: float, incidence: float, digits: Sequence[float]) -> str:
    """The public name of a case, numbers rounded to three decimals.

    Args:
        speed: of the stream, positive.
        incidence: in degrees.
        digits: three for an airfoil of four digits (camber, its position, thickness), four for one
            of five (lift, position, 1 if reflexed, thickness), in the units of
            `funcattn.pde.naca`.

    Example:
        >>> case_name(43.5968, 5.932, (3.551, 3.1, 1.0, 18.252))
        'airFoil2D_SST_43.597_5.932_3.551_3.1_1.0_18.252'
    """
    # Adding zero turns -0.0 into 0.0.
    rounded = [round(float(number), 3) + 0.0 for number in (speed, incidence, *digits)]
    name = "_".join(["airFoil2D_SST", *map(str, rounded)])
    parse_name(name)
    return name


def parse_name(name: str) -> CaseName:
    """What the public name of a case says.

    Raises:
        ValueError: it is no such name. So what passes is also safe as the name of a file.

    Example:
        >>> parse_name("airFoil2D_SST_58.831_-3.563_2.815_4.916_10.078")
        CaseName(speed=58.831, incidence=-3.563, digits=(2.815, 4.916, 10.078))
    """
    numbers = [float(part) for part in name.split("_")[2:]] if _NAME.fullmatch(name) else []
    if not numbers or numbers[0] <= 0.0:
        raise ValueError(
            "expected a name like airFoil2D_SST_58.831_-3.563_2.815_4.916_10.078, that is a speed "
            f"above zero, an incidence, and three or four digits, got {name[:99]!r}: make it by "
            "case_name"
        )
    return CaseName(numbers[0], numbers[1], tuple(numbers[2:]))


def read_manifest(folder: str | Path) -> dict[str, list[str]]:
    """The lists of cases in a folder, by their keys; the names in them are those of `parse_name`.

    Raises:
        FileNotFoundError: there is no manifest.json.
        ValueError: it is damaged, a name is none, or a case is twice in a list, or in the training
            and the test list of one split.
    """
    path = Path(folder, "manifest.json")
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: expected the lists of cases, got no such file: give the folder that has it, "
            "in the public archive Dataset"
        )
    try:
        lists = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: expected lists of cases in JSON, got something else ({error}): "
            "download or copy it again"
        ) from error
    _check_lists(path, lists)
    return dict(lists)


def read_case(
    folder: str | Path, name: str, *, box: npt.ArrayLike | None = None
) -> dict[str, Array]:
    """Read one case: the nodes of its mesh, those on the airfoil first.

    The surface are the nodes on the outline, where velocity vanishes in the public set. They run
    counterclockwise, from the trailing edge (the rightmost point) over the upper side to the nose
    and back; if the outline in the file begins right after the trailing edge, so do they, and end
    with it. The others follow in the order of the mesh.

    Args:
        folder: that of the manifest.
        name: of the case.
        box: lower left and upper right corner, (2, 2), of the nodes to keep. By default all are
            kept: public meshes are cut along whole cells, so that they go a little beyond the box
            [-2, 4] x [-1.5, 1.5], and public scores count all their nodes.

    Returns:
        Of n nodes, s of them on the surface: position (n, 2); features (n, 7), which are x, y, u
        and v of the stream, distance to the airfoil, normal x and y out of the body (both zero off
        the surface, distance zero on it); target (n, 4), which is u, v, pressure / density, eddy
        viscosity; surface (n,), true there; length (s,), half of both edges that meet at a node,
        so that their sum is the perimeter; and shear (s, 2), the force of friction on the wall per
        area and density, if the outline has it as wallShearStress. In the precision of the mesh.
        Numbers: speed, incidence in degrees, reynolds (for `VISCOSITY`), family (4 or 5) and
        digits (4,), as in `funcattn.pde.panel.sample`; they are as exact as the name, unless
        `write_cases` wrote the case, and then all that it was given is here.

    Raises:
        FileNotFoundError: a file of the case is not there.
        ValueError: a file is damaged, lacks an array, or its numbers do not fit together; the
            message says which, and what to do.
    """
    parse_name(name)
    mesh_file, outline_file = _files(folder, name)
    for path in (mesh_file, outline_file):
        if not path.is_file():
            raise FileNotFoundError(
                f"{path}: expected a file of the case, got none: copy or unpack the folder again"
            )
    scalars = {"p": 1, "nut": 1, "implicit_distance": 1}
    mesh = read_vtk(mesh_file, {"U": 2, **scalars}, numbers=_NUMBERS)
    outline = read_vtk(outline_file, {"Normals": 2}, optional={"length": 1, "wallShearStress": 2})
    case = _case(name, mesh, outline)
    if box is None:
        return case
    corners, where = np.asarray(box, dtype=np.float64), case["position"]
    if corners.shape != (2, 2):
        raise ValueError(f"box: expected two corners, shape (2, 2), got {corners.shape}")
    inside = ((where >= corners[0]) & (where <= corners[1])).all(axis=1)
    if not inside[case["surface"]].all():
        raise ValueError(
            f"{name}: expected a box around the airfoil, lower left corner first, got "
            f"{corners.tolist()}: enlarge it"
        )
    return case | {key: case[key][inside] for key in ("position", "features", "target", "surface")}


def write_cases(
    folder: str | Path,
    cases: Mapping[str, Mapping[str, Array]],
    splits: Mapping[str, Sequence[str]],
) -> None:
    """Write cases in the public layout, so that `read_case` gives the same arrays, to the bit.

    Meshes become clouds, and outlines closed chains of their surface nodes. Files appear whole or
    not at all, and the manifest last. Public loaders take nodes with u = 0 for the surface, and
    find none where the flow slips.

    Args:
        folder: made if it is not there; files of the same names are replaced.
        cases: by name (see `case_name`), arrays as `read_case` returns them; asked for one by one.
            Position, features, target, surface and length are needed, all of them in float32 or
            all in float64; shear, speed and the other numbers of `funcattn.pde.panel.sample` and
            `funcattn.pde.openfoam.sample` may be there.
        splits: names of the cases for each key of the manifest.

    Raises:
        ValueError: names or arrays are not as above. Cases before it are written, the manifest is
            not.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from funcattn.pde.panel import sample
        >>> case = sample(panels=60, field_points=100, rng=np.random.default_rng(0))
        >>> speed = float(np.hypot(*case["features"][0, 2:4]))
        >>> digits = case["digits"][[0, 1, 3] if case["family"] == 4 else [0, 1, 2, 3]]
        >>> name = case_name(speed, float(case["incidence"]), digits.tolist())
        >>> with TemporaryDirectory() as folder:
        ...     write_cases(folder, {name: case}, {"full_train": [name]})
        ...     (again,) = (read_case(folder, n) for n in read_manifest(folder)["full_train"])
        >>> all(np.array_equal(again[key], case[key]) for key in case)
        True
    """
    folder = Path(folder)
    lists = {key: list(names) for key, names in splits.items()}
    _check_lists(folder / "manifest.json", lists)
    for name in cases:
        parse_name(name)
    if unknown := {name for names in lists.values() for name in names} - set(cases):
        raise ValueError(f"splits: expected names of cases, got {min(unknown)}: give this case too")
    for name in cases:
        case = {key: np.asarray(array) for key, array in cases[name].items()}
        mesh, outline = _disassemble(name, case)
        _check_same(name, case, _case(name, mesh, outline))  # before anything is on disk
        mesh_file, outline_file = _files(folder, name)
        mesh_file.parent.mkdir(parents=True, exist_ok=True)
        write_vtk(mesh_file, mesh)
        write_vtk(outline_file, outline)
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / "manifest.json", json.dumps(lists, indent=1).encode())


def public_split(
    name: Split, reynolds: npt.ArrayLike, incidence: npt.ArrayLike
) -> tuple[Indices, Indices]:
    """Split cases by the rules of the public set: the indices for training, and for the test.

    full        the first four fifths, and the rest
    scarce      the first quarter of those, and the same rest
    reynolds    Reynolds numbers between 3e6 and 5e6, and those beyond
    aoa         incidences between -2.5 and 12.5 degrees, and those beyond

    Args:
        name: of the rule.
        reynolds: Reynolds numbers, (cases,).
        incidence: in degrees, (cases,).

    Raises:
        ValueError: arguments are not as above, or a part has no case.

    Example:
        >>> public_split("aoa", [2e6, 4e6, 5e6], [-3.0, 0.0, 10.0])
        (array([1, 2]), array([0]))
    """
    number, angle = np.asarray(reynolds, np.float64), np.asarray(incidence, np.float64)
    if number.ndim != 1 or number.shape != angle.shape or not np.isfinite([number, angle]).all():
        raise ValueError(
            "expected a finite Reynolds number and a finite incidence for each case, got shapes "
            f"{number.shape} and {angle.shape}: give two lists of the same cases"
        )
    first = np.arange(len(number)) < 4 * len(number) // 5
    rules = {
        "full": first,
        "scarce": first,
        "reynolds": (number > 3e6) & (number < 5e6),
        "aoa": (angle > -2.5) & (angle < 12.5),
    }
    if name not in rules:
        raise ValueError(f"expected a split among {', '.join(rules)}, got {name!r}")
    train, test = np.flatnonzero(rules[name]), np.flatnonzero(~rules[name])
    if name == "scarce":
        train = train[: len(train) // 4]
    if not (len(train) and len(test)):
        raise ValueError(
            f"{name}: expected cases for training and for the test, got {len(train)} and "
            f"{len(test)} of {len(number)}: take more cases, or another split"
        )
    return train, test


def _files(folder: str | Path, name: str) -> tuple[Path, Path]:
    """The two files of a case."""
    start = Path(folder, name, name)
    return Path(f"{start}_internal.vtu"), Path(f"{start}_aerofoil.vtp")


def _check_lists(path: Path, lists: object) -> None:
    """Refuse what is no manifest."""
    if not (
        isinstance(lists, dict)
        and lists
        and all(isinstance(names, list) for names in lists.values())
        and all(isinstance(name, str) for names in lists.values() for name in names)
    ):
        raise ValueError(
            f"{path}: expected lists of names by their keys, like full_train, got something else: "
            "take the manifest of the data set"
        )
    for key, names in lists.items():
        try:
            for name in names:
                parse_name(name)
        except ValueError as error:
            raise ValueError(f"{path}: {key}: {error}") from error
        of_test = f"{key.removesuffix('_train')}_test"
        other = lists.get(of_test, []) if key.endswith("_train") else []
        if twice := [name for name, times in Counter([*names, *other]).items() if times > 1]:
            raise ValueError(
                f"{path}: expected every case once in {key} and the test list to it, got "
                f"{twice[0]} more often: leave it out of one"
            )


def _case(name: str, mesh: VtkPoints, outline: VtkPoints) -> dict[str, Array]:
    """The arrays of a case from those of its files."""
    where, rim = _plane(name, "mesh", mesh), _plane(name, "outline", outline)
    velocity, on_rim = mesh.values["U"][:, :2], outline.values
    loop = _loop(name, rim, outline.edges)
    step = np.linalg.norm(np.roll(rim[loop], -1, axis=0) - rim[loop], axis=1)
    length = 0.5 * (step + np.roll(step, 1))

    # Where nodes coincide they are all on the surface, one after the other, and share the length.
    away, found = spatial.KDTree(rim[loop]).query(where, distance_upper_bound=_SAME)
    on, rank = np.isfinite(away), np.asarray(found)
    shared = np.bincount(rank[on], minlength=len(loop))
    still = ~on & (velocity == 0.0).all(axis=1)
    if not shared.all() or still.any():
        raise ValueError(
            f"{name}: expected a node at each point of the outline, and no others at rest, got "
            f"{(shared == 0).sum()} points without one and {still.sum()} nodes at rest: take mesh "
            "and outline of the same case"
        )
    walls = np.flatnonzero(on)[rank[on].argsort(kind="stable")]
    order, rank = np.concatenate([walls, np.flatnonzero(~on)]), rank[walls]
    surface = np.arange(len(order)) < len(walls)
    normal = np.zeros(where.shape)
    normal[surface] = _outwards(name, rim[loop], on_rim["Normals"][loop, :2], length)[rank]
    numbers = _numbers(name, mesh.numbers)
    features = [
        where[order],
        np.broadcast_to(numbers.pop("stream"), where.shape),
        # The sign only says that a node is in the fluid, and all are; near the wall it may be off.
        np.where(surface, 0.0, abs(mesh.values["implicit_distance"][order])),
        normal,
    ]
    target = [velocity[order], mesh.values["p"][order], mesh.values["nut"][order]]
    lengths = on_rim["length"][loop] if "length" in on_rim else length / shared
    lengths = lengths[rank]
    if lengths.min() < 0.0 or not 0.75 < lengths.sum() / length.sum() < 1.25:
        raise ValueError(
            f"{name}: expected lengths that sum to the perimeter, {length.sum():.4}, got "
            f"{lengths.min():.4} and more, with sum {lengths.sum():.4}: leave them out, and they "
            "are computed"
        )
    dtype = np.result_type(np.float32, mesh.points, *mesh.values.values())
    case = {
        "position": where[order].astype(dtype),
        "features": np.column_stack(features).astype(dtype),
        "target": np.column_stack(target).astype(dtype),
        "surface": surface,
        "length": lengths.astype(dtype),
    }
    if "wallShearStress" in on_rim:
        shear, stream = on_rim["wallShearStress"][loop, :2][rank], features[1][0]
        if abs(shear).max() > stream @ stream or lengths @ shear @ stream < 0.0:
            raise ValueError(
                f"{name}: expected a wallShearStress over density, below the square of the speed, "
                f"that pulls the airfoil along with the stream, got up to {abs(shear).max():.4} or "
                "the opposite (as OpenFOAM has it): change unit or sign"
            )
        case["shear"] = shear.astype(dtype)
    return case | numbers


def _disassemble(name: str, case: Mapping[str, Array]) -> tuple[VtkPoints, VtkPoints]:
    """The arrays of the files from those of a case."""
    needed = ("position", "features", "target", "surface", "length")
    known = (*needed, "shear", *_NUMBERS[1:])
    if not set(needed) <= set(case) <= set(known):
        raise ValueError(
            f"{name}: expected the arrays {', '.join(needed)} and at most {', '.join(known)}, got "
            f"{', '.join(case)}: name them so"
        )
    nodes, walls = case["surface"].size, case["length"].size
    shapes: dict[str, tuple[int, ...]]
    shapes = {"position": (nodes, 2), "features": (nodes, 7), "target": (nodes, 4)}
    shapes |= {"surface": (nodes,), "length": (walls,), "shear": (walls, 2)}
    for key, shape in shapes.items():
        if key in case and (case[key].shape != shape or not np.isfinite(case[key]).all()):
            raise ValueError(
                f"{name}: expected {key} finite and of shape {shape}, got shape {case[key].shape}: "
                f"there are {nodes} nodes and {walls} lengths"
            )
    if not walls or not np.array_equal(case["surface"].nonzero()[0], np.arange(walls)):
        raise ValueError(
            f"{name}: expected {walls} surface nodes, as there are lengths, before all others, got "
            f"{np.count_nonzero(case['surface'])} or in other places: sort the nodes"
        )
    position, features, target = case["position"], case["features"], case["target"]
    values = {
        "U": _with_zeros(target[:, :2]),
        "p": target[:, 2],
        "nut": target[:, 3],
        "implicit_distance": -features[:, 4],
    }
    outline = {key: values[key][:walls] for key in ("U", "p", "nut")}
    outline |= {"Normals": -_with_zeros(features[:walls, 5:]), "length": case["length"]}
    if "shear" in case:
        outline["wallShearStress"] = _with_zeros(case["shear"])
    numbers = {"stream": features[0, 2:4], "speed": np.hypot(*features[0, 2:4].astype(float))}
    numbers |= {key: case[key] for key in _NUMBERS if key in case}
    around = np.arange(walls)
    return (
        VtkPoints(
            _with_zeros(position),
            values,
            numbers={key: np.atleast_1d(number) for key, number in numbers.items()},
        ),
        VtkPoints(
            _with_zeros(position[:walls]), outline, np.stack([around, np.roll(around, -1)], axis=1)
        ),
    )


def _check_same(name: str, given: Mapping[str, Array], kept: Mapping[str, Array]) -> None:
    """Refuse a case that would not come back as it is."""
    for key, array in given.items():
        if array.dtype != kept[key].dtype or not np.array_equal(array, kept[key]):
            raise ValueError(
                f"{name}: expected a case as read_case gives it, got {key} ({array.dtype} of shape "
                f"{array.shape}) that would come back otherwise: put surface nodes first, "
                "counterclockwise from the trailing edge; give features the positions, one stream, "
                "and distance and normals in their places; use one precision"
            )


def _plane(name: str, what: str, data: VtkPoints) -> npt.NDArray[np.float64]:
    """The x and y of points, (n, 2), if they are in a plane and in chords."""
    low, high = (points.astype(np.float64) for points in (data.points.min(0), data.points.max(0)))
    if high[2] - low[2] > _SAME or max(*abs(low), *abs(high)) > _FARTHEST:
        raise ValueError(
            f"{name}: expected a {what} in one plane z, in chords, got x, y and z from {low} to "
            f"{high}: cut it in the plane of the flow, and divide by the chord"
        )
    return data.points[:, :2].astype(np.float64)


def _with_zeros(array: Array) -> Array:
    """Vectors (n, 2) in three dimensions."""
    return np.pad(array, ((0, 0), (0, 1)))


def _loop(name: str, points: npt.NDArray[np.float64], edges: Indices) -> Indices:
    """The indices of points along the one closed chain that their edges are, as `read_case` says.

    Of points in one place there is the first.
    """
    _, first, place = np.unique(points, axis=0, return_index=True, return_inverse=True)
    same = first[place.reshape(-1)]
    edges = np.unique(np.sort(same[edges], axis=1), axis=0)
    edges = edges[edges[:, 0] != edges[:, 1]]
    ends = np.concatenate([edges, edges[:, ::-1]])
    ends = ends[ends[:, 0].argsort(kind="stable")]
    loop: list[int] = []
    if len(first) > 2 and np.array_equal(ends[:, 0], np.sort(np.repeat(first, 2))):
        beside = dict(zip(ends[::2, 0].tolist(), ends[:, 1].reshape(-1, 2).tolist(), strict=True))
        x, y = points[first].T
        start = here = int(first[np.lexsort((y, x))[-1]])
        before, _ = beside[start]
        while here != start or not loop:
            loop.append(here)
            one, other = beside[here]
            before, here = here, other if one == before else one
    x, y = points[loop].T
    area = x @ np.roll(y, -1) - y @ np.roll(x, -1)
    if len(loop) != len(first) or area == 0.0:
        raise ValueError(
            f"{name}: expected an outline that is one closed chain of {len(first)} points, got "
            f"{len(edges)} edges that are not: take another file, or connect its points"
        )
    if area < 0.0:
        loop[1:] = loop[:0:-1]
    return np.roll(loop, -1 if loop[1] == 0 else 0)


def _outwards(name: str, points: Array, normals: Array, length: Array) -> Array:
    """Normals along a counterclockwise chain, turned out of the body if they point into it."""
    along = np.roll(points, -1, axis=0) - np.roll(points, 1, axis=0)
    out = 0.5 * (along[:, 1] @ normals[:, 0] - along[:, 0] @ normals[:, 1])
    if abs(normals).max() > 1.5 or abs(out) < 0.5 * length.sum():
        raise ValueError(
            f"{name}: expected Normals of length 1 across the outline, all to one side, got "
            "others: take another file, or compute them again"
        )
    return normals if out > 0.0 else -normals


def _numbers(name: str, stored: Mapping[str, Array]) -> dict[str, Array]:
    """The numbers of a case: those stored, if they fit the name, else those of the name."""
    speed, incidence, digits = parse_name(name)
    angle = np.deg2rad(incidence)
    four = len(digits) == 3
    said = {
        "stream": speed * np.array([np.cos(angle), np.sin(angle)]),
        "speed": np.array(speed),
        "incidence": np.array(incidence),
        "family": np.array(4.0 if four else 5.0),
        "digits": np.array([*digits[:2], 0.0, digits[2]] if four else digits),
    }
    # One number is kept as a list of one.
    kept = {key: array[0, ...] if len(array) == 1 else array for key, array in stored.items()}
    for key, expected in said.items():
        found = kept.get(key, expected)
        # Half of the last decimal, for the stream of speed and angle, and for single precision.
        if found.shape != expected.shape or (abs(found - expected) > 1e-3 + 1e-5 * speed).any():
            raise ValueError(
                f"{name}: expected {key} near {expected}, as the name says, got {found}: "
                "rename the case by case_name"
            )
    return {**said, "reynolds": np.array(speed / VISCOSITY), **kept}
