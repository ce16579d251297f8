import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from funcattn.data.rna import (
    READY_FILE,
    RnaCloud,
    RnaFile,
    RnaFolder,
    RnaSurfaces,
    farthest_point_sampling,
    open_rna,
    read_labels,
    read_off_vertices,
)

SIZES = {"1ABC_A": 30, "2DEF_B": 12, "3GHI_C": 50, "4JKL_D": 41}
TRAIN, TEST = ("3GHI_C", "1ABC_A", "2DEF_B"), ("4JKL_D",)


def vertices_of(name: str) -> np.ndarray:
    random = np.random.default_rng(len(name) + SIZES[name])
    return 40 + 7 * random.normal(size=(SIZES[name], 3)) * [1, 2, 3]


def labels_of(name: str) -> np.ndarray:
    return np.random.default_rng(SIZES[name]).integers(-1, 259, size=SIZES[name])


def write_off(path: Path, vertices: np.ndarray, *, header: str | None = None) -> None:
    header = header or f"OFF\n{len(vertices)} 1 0\n"
    rows = [" ".join(repr(float(x)) for x in vertex) for vertex in vertices]
    path.write_text(header + "\n".join([*rows, "3 0 1 2"]) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four surfaces in the public layout."""
    for part in ("off", "labels"):
        (tmp_path / part).mkdir()
    for name in SIZES:
        write_off(tmp_path / "off" / f"{name}.off", vertices_of(name))
        lines = "\n".join(str(label) for label in labels_of(name))
        (tmp_path / "labels" / f"{name}.txt").write_text(lines + "\n")
    (tmp_path / "train.txt").write_text("".join(f"{name}.off\n" for name in TRAIN))
    (tmp_path / "test.txt").write_text("".join(f"{name}.off\n" for name in TEST))
    return tmp_path


def write_ready(path: Path, clouds: Sequence[RnaCloud], **changes: object) -> Path:
    """The ready file of these clouds."""
    arrays: dict[str, object] = {
        "points": np.concatenate([cloud.points for cloud in clouds]),
        "labels": np.concatenate([cloud.labels for cloud in clouds]).astype(np.int16),
        "count": np.array([len(cloud.points) for cloud in clouds], dtype=np.int32),
        "name": np.array([cloud.name for cloud in clouds]),
        "split": np.array(["test" if cloud.name in TEST else "train" for cloud in clouds]),
        "mesh_vertices": np.array([SIZES[cloud.name] for cloud in clouds], dtype=np.int32),
    } | changes
    np.savez_compressed(path, **{key: a for key, a in arrays.items() if a is not None})
    return path


@pytest.fixture
def clouds(folder: Path) -> list[RnaCloud]:
    return RnaFolder(folder).read([*TRAIN, *TEST], points=40)


@pytest.fixture
def ready(tmp_path: Path, clouds: list[RnaCloud]) -> Path:
    return write_ready(tmp_path / "clouds.npz", clouds)


def brute_force_sampling(points: np.ndarray, k: int, start: int) -> list[int]:
    chosen = [start]
    while len(chosen) < k:
        away = [
            -1.0 if i in chosen else min(float(np.linalg.norm(point - points[j])) for j in chosen)
            for i, point in enumerate(points)
        ]
        chosen.append(int(np.argmax(away)))
    return chosen


@pytest.mark.parametrize("space", [1, 2, 3])
@pytest.mark.parametrize(("n", "k", "start"), [(1, 1, 0), (25, 25, 0), (40, 13, 7)])
def test_farthest_points_are_those_of_brute_force(space: int, n: int, k: int, start: int) -> None:
    points = np.random.default_rng(n + space).normal(size=(n, space))
    chosen = farthest_point_sampling(points, k, start)
    assert chosen.tolist() == brute_force_sampling(points, k, start)
    assert len(set(chosen.tolist())) == k


def test_farthest_points_are_nested() -> None:
    points = np.random.default_rng(0).normal(size=(200, 3))
    many = farthest_point_sampling(points, 60)
    assert farthest_point_sampling(points, 23).tolist() == many[:23].tolist()
    # The first of a sample, in its order, are also what sampling the sample gives.
    assert farthest_point_sampling(points[many], 23).tolist() == list(range(23))


def test_points_that_coincide_are_still_taken_once_each() -> None:
    points = np.zeros((6, 3))
    points[4] = 1
    assert sorted(farthest_point_sampling(points, 6).tolist()) == list(range(6))


def test_sampling_refuses_what_is_not_there() -> None:
    points = np.zeros((5, 3))
    for k in (0, 6):
        with pytest.raises(ValueError, match=f"k: expected 1 to 5, the number of points, got {k}"):
            farthest_point_sampling(points, k)
    with pytest.raises(ValueError, match="start: expected 0 to 4, got 5"):
        farthest_point_sampling(points, 2, start=5)


def test_a_folder_gives_normalised_samples_with_their_labels(folder: Path) -> None:
    surfaces = RnaFolder(folder)
    assert (surfaces.train, surfaces.test) == (TRAIN, TEST)
    for cloud in surfaces.read(["4JKL_D", "2DEF_B"], points=20):
        vertices = vertices_of(cloud.name)
        vertices -= vertices.mean(axis=0)
        vertices /= np.sqrt((vertices**2).sum(axis=1)).max()
        order = brute_force_sampling(vertices, min(20, len(vertices)), 0)
        np.testing.assert_allclose(cloud.points, vertices[order], atol=1e-6)
        assert cloud.labels.tolist() == (labels_of(cloud.name) + 1)[order].tolist()
        assert cloud.points.dtype == np.float32
        assert cloud.labels.dtype == np.int64


def test_a_small_surface_keeps_all_its_vertices(folder: Path) -> None:
    (cloud,) = RnaFolder(folder).read(["2DEF_B"], points=4096)
    assert cloud.points.shape == (12, 3)
    assert np.linalg.norm(cloud.points, axis=1).max() == pytest.approx(1)
    np.testing.assert_allclose(cloud.points.mean(axis=0), 0, atol=1e-6)


@pytest.mark.parametrize("points", [4096, 40, 9])
def test_the_ready_file_gives_what_the_folder_gives(folder: Path, ready: Path, points: int) -> None:
    by_folder, by_file = RnaFolder(folder), RnaFile(ready)
    assert (by_file.train, by_file.test) == (by_folder.train, by_folder.test)
    names = ["4JKL_D", "3GHI_C", "2DEF_B"]
    pairs = zip(by_file.read(names, points), by_folder.read(names, min(points, 40)), strict=True)
    for one, other in pairs:
        assert one.name == other.name
        np.testing.assert_array_equal(one.points, other.points)
        np.testing.assert_array_equal(one.labels, other.labels)
        assert (one.points.dtype, one.labels.dtype) == (np.float32, np.int64)


@pytest.mark.parametrize("layout", ["folder", "ready"])
def test_progress_is_reported(layout: str, request: pytest.FixtureRequest) -> None:
    told: list[tuple[int, int]] = []
    surfaces = open_rna(request.getfixturevalue(layout))
    surfaces.read(TRAIN, 5, lambda done, total: told.append((done, total)))
    assert told[-1] == (3, 3)


@pytest.mark.parametrize("layout", ["folder", "ready"])
def test_a_name_that_is_in_no_list_is_refused(layout: str, request: pytest.FixtureRequest) -> None:
    surfaces: RnaSurfaces = open_rna(request.getfixturevalue(layout))
    with pytest.raises(ValueError, match="names: expected some of the 4 of the lists, got nobody"):
        surfaces.read(["1ABC_A", "nobody"])


def test_a_path_opens_as_what_it_is(folder: Path, clouds: list[RnaCloud]) -> None:
    assert isinstance(open_rna(folder), RnaFolder)
    assert isinstance(open_rna(str(write_ready(folder / "x.npz", clouds))), RnaFile)
    write_ready(folder / READY_FILE, clouds)
    assert isinstance(open_rna(folder), RnaFile)


def test_nothing_at_the_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected the data set's folder, or a file like"):
        open_rna(tmp_path / "absent")


@pytest.mark.parametrize("part", ["off", "labels"])
def test_a_folder_without_its_parts(folder: Path, part: str) -> None:
    (folder / part).rename(folder / "elsewhere")
    with pytest.raises(FileNotFoundError, match=f"there is no folder {part}"):
        open_rna(folder)


@pytest.mark.parametrize("part", ["train.txt", "test.txt"])
def test_a_folder_without_its_lists(folder: Path, part: str) -> None:
    (folder / part).unlink()
    with pytest.raises(FileNotFoundError, match=f"{part}: expected a list of meshes"):
        open_rna(folder)


@pytest.mark.parametrize("name", ["9XYZ_Q", "../off/1ABC_A", "/etc/passwd"])
def test_a_list_that_names_what_is_not_there(folder: Path, name: str) -> None:
    (folder / "test.txt").write_text(f"4JKL_D.off\n{name}.off\n")
    with pytest.raises(FileNotFoundError, match=f"expected names of files in off, got {name}.off"):
        open_rna(folder)


def test_a_mesh_without_labels(folder: Path) -> None:
    (folder / "labels" / "4JKL_D.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"expected the labels of 4JKL_D\.off"):
        open_rna(folder)


def test_a_surface_for_training_and_for_the_test(folder: Path) -> None:
    (folder / "test.txt").write_text("4JKL_D.off\n1ABC_A.off\n")
    with pytest.raises(ValueError, match="every surface once, in one of the lists, got 1ABC_A"):
        open_rna(folder)


def test_blank_lines_and_other_line_ends_in_lists(folder: Path) -> None:
    (folder / "test.txt").write_bytes(b"4JKL_D.off\r\n\r\n")
    assert RnaFolder(folder).test == ("4JKL_D",)


def test_labels_that_are_too_few(folder: Path) -> None:
    (folder / "labels" / "4JKL_D.txt").write_text("3\n4\n")
    message = r"4JKL_D\.txt: expected a label for each of the 41 vertices of 4JKL_D\.off, got 2"
    with pytest.raises(ValueError, match=message):
        RnaFolder(folder).read(["4JKL_D"])


@pytest.mark.parametrize("text", ["3\nx\n", "3.5\n"])
def test_labels_that_are_no_integers(tmp_path: Path, text: str) -> None:
    (tmp_path / "labels.txt").write_text(text)
    with pytest.raises(ValueError, match=r"labels\.txt: expected one integer a line, got"):
        read_labels(tmp_path / "labels.txt")


@pytest.mark.parametrize("label", [-2, 259])
def test_labels_that_are_no_classes(tmp_path: Path, label: int) -> None:
    (tmp_path / "labels.txt").write_text(f"0\n{label}\n")
    with pytest.raises(ValueError, match=r"expected labels plus one within 0 to 259"):
        read_labels(tmp_path / "labels.txt")


def test_a_mesh_of_one_point_is_no_surface(folder: Path) -> None:
    write_off(folder / "off" / "4JKL_D.off", np.full((41, 3), 2.0))
    with pytest.raises(ValueError, match=r"4JKL_D\.off: expected a surface, got a single point"):
        RnaFolder(folder).read(["4JKL_D"])


@pytest.mark.parametrize(
    "header",
    ["OFF\n4 1 0\n", "OFF 4 1 0\n", "# made by hand\nOFF\n\n4 1 0 # counts\n# vertices\n"],
    ids=["two lines", "one line", "comments"],
)
def test_off_headers_of_all_kinds(tmp_path: Path, header: str) -> None:
    vertices = np.arange(12.0).reshape(4, 3) / 7
    write_off(tmp_path / "mesh.off", vertices, header=header)
    np.testing.assert_array_equal(read_off_vertices(tmp_path / "mesh.off"), vertices)


def test_off_vertices_may_have_colours(tmp_path: Path) -> None:
    (tmp_path / "mesh.off").write_text("OFF\n2 0 0\n1 2 3 255 0 0\n4 5 6 0 255 0\n")
    assert read_off_vertices(tmp_path / "mesh.off").tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with the word OFF, got ''"),
        ("ply\nformat ascii 1.0\n", "begins with the word OFF, got 'ply'"),
        ("OFF\n", "the numbers of vertices, faces and edges after OFF, got ''"),
        ("OFF\nmany 1 0\n", "the numbers of vertices, faces and edges after OFF, got 'many 1 0'"),
        ("OFF\n0 0 0\n", "the numbers of vertices, faces and edges after OFF"),
        ("OFF\n3 1 0\n0 0 0\n1 0 0\n", "expected 3 vertices, got 2 lines; it is cut off"),
        ("OFF\n2 0 0\n0 0 0\n1 zero 0\n", "expected three numbers a vertex"),
        ("OFF\n2 0 0\n0 0 0\n1 0\n", "expected three numbers a vertex"),
        ("OFF\n2 0 0\n0 0\n1 0\n", "expected three finite numbers a vertex"),
        ("OFF\n2 0 0\n0 0 nan\n1 0 0\n", "expected three finite numbers a vertex"),
    ],
    ids=range(10),
)
def test_off_files_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mesh.off").write_text(text)
    with pytest.raises(ValueError, match=rf"mesh\.off: .*{message}"):
        read_off_vertices(tmp_path / "mesh.off")


@pytest.mark.parametrize("kept", [0, 10, 0.5, 0.95])
def test_a_ready_file_that_is_cut_off(ready: Path, kept: float) -> None:
    content = ready.read_bytes()
    ready.write_bytes(content[: int(kept if kept >= 1 else kept * len(content))])
    with pytest.raises(ValueError, match="expected a whole npz file of RNA clouds"):
        RnaFile(ready)


def test_a_ready_file_that_is_damaged_inside(ready: Path) -> None:
    with zipfile.ZipFile(ready) as archive:
        start = archive.getinfo("points.npy").header_offset
    content = bytearray(ready.read_bytes())
    content[start + 100 : start + 140] = bytes(40)
    ready.write_bytes(content)
    with pytest.raises(ValueError, match="expected a whole npz file of RNA clouds"):
        RnaFile(ready)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(ValueError, match="expected a whole npz file of RNA clouds"):
        RnaFile(tmp_path / "array.npy")


def test_pickles_are_not_opened(tmp_path: Path, clouds: list[RnaCloud]) -> None:
    names = np.array([cloud.name for cloud in clouds], dtype=object)
    file = write_ready(tmp_path / "pickled.npz", clouds, name=names)
    with pytest.raises(ValueError, match=r"expected numbers in name, got Python objects"):
        RnaFile(file)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None, "split": None}, "add labels, split"),
        ({"points": np.zeros((7, 3), np.float32)}, "expected as many points"),
        ({"labels": np.zeros(7, np.int16)}, "expected as many points"),
        ({"count": np.array([[40, 30, 12, 40]])}, "expected as many points"),
        ({"count": np.array([52, 30, 0, 40])}, "expected as many points"),
        ({"name": np.array(["a", "b"])}, "expected as many points"),
        ({"name": np.array(["a", "b", "c", "a"])}, "every surface once"),
        ({"split": np.array(["train", "dev", "test", "all"])}, r"got \['all', 'dev'\]"),
        ({"labels": np.full(122, 260, np.int16)}, "within 0 to 259, got 260 to 260"),
        ({"points": np.full((122, 3), np.nan, np.float32)}, "expected finite points"),
    ],
    ids=range(10),
)
def test_a_ready_file_that_does_not_fit_together(
    tmp_path: Path, clouds: list[RnaCloud], changes: dict[str, object], message: str
) -> None:
    file = write_ready(tmp_path / "changed.npz", clouds, **changes)
    with pytest.raises(ValueError, match=message):
        RnaFile(file)
