"""Files and folders of the field's own collections, and of xarray and Hugging Face."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy.io import netcdf_file

from funcattn.data.cases import Case, open_folder, read_mesh
from funcattn.data.foreign import FileError

pyvista = pytest.importorskip("pyvista")


# CGNS and PLAID


def node(parent: Any, name: str, label: str, kind: str, data: Any = None) -> Any:
    """A node of a CGNS file in HDF5."""
    made = parent.create_group(name, track_order=True)
    for key, word, length in (("name", name, 33), ("label", label, 33), ("type", kind, 3)):
        made.attrs[key] = np.array(word.encode(), f"S{length}")
    made.attrs["flags"] = np.array([1], np.int32)
    if data is not None:
        words = np.frombuffer(data.encode(), np.int8) if isinstance(data, str) else data
        made[" data"] = words
    return made


def write_cgns(path: Path, u: np.ndarray, numbers: dict[str, float], time: float = 0.0) -> None:
    """A square of two triangles with a field on its corners, as PLAID writes it."""
    with h5py.File(path, "w") as file:
        file.attrs["name"] = np.array(b"HDF5 MotherNode", "S33")
        file.attrs["label"] = np.array(b"Root Node of HDF5 File", "S33")
        file.attrs["type"] = np.array(b"MT", "S3")
        file[" format"] = np.frombuffer(b"IEEE_LITTLE_32\0", np.int8)
        file[" hdf5version"] = np.frombuffer(b"HDF5 Version 1.14.0".ljust(33, b"\0"), np.int8)
        version = np.array([4.0], np.float32)
        node(file, "CGNSLibraryVersion", "CGNSLibraryVersion_t", "R4", version)
        base = node(file, "Base_2_2", "CGNSBase_t", "I4", np.array([2, 2], np.int32))
        when = node(base, "Time", "BaseIterativeData_t", "I4", np.array([1], np.int32))
        node(when, "TimeValues", "DataArray_t", "R8", np.array([time]))
        zone = node(base, "Zone", "Zone_t", "I8", np.array([[4], [2], [0]]))
        node(zone, "ZoneType", "ZoneType_t", "C1", "Unstructured")
        places = node(zone, "GridCoordinates", "GridCoordinates_t", "MT")
        node(places, "CoordinateX", "DataArray_t", "R8", np.array([0.0, 1, 1, 0]))
        node(places, "CoordinateY", "DataArray_t", "R8", np.array([0.0, 0, 1, 1]))
        cells = node(zone, "Elements_TRI_3", "Elements_t", "I4", np.array([5, 0], np.int32))
        node(cells, "ElementRange", "IndexRange_t", "I8", np.array([1, 2]))
        corners = np.array([1, 2, 3, 1, 3, 4])
        node(cells, "ElementConnectivity", "DataArray_t", "I8", corners)
        fields = node(zone, "VertexFields", "FlowSolution_t", "MT")
        node(fields, "GridLocation", "GridLocation_t", "C1", "Vertex")
        node(fields, "u", "DataArray_t", "R8", u)
        if numbers:
            known = node(file, "Global", "CGNSBase_t", "I4", np.array([1, 1], np.int32))
            for name, number in numbers.items():
                node(known, name, "DataArray_t", "R8", np.array([number]))


def test_a_cgns_file_is_read(tmp_path: Path) -> None:
    write_cgns(tmp_path / "a.cgns", np.arange(4.0), {})
    case = read_mesh(tmp_path / "a.cgns")
    np.testing.assert_array_equal(case["u"], np.arange(4.0))
    assert case.names == ["u"]
    assert case.weights is not None
    assert case.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("below", ["data/train", "dataset/samples", ""])
def test_samples_of_plaid_are_cases_with_their_numbers(below: str, tmp_path: Path) -> None:
    for number in range(3):
        sample = tmp_path / below / f"sample_{number:09}"
        (sample / "meshes").mkdir(parents=True)
        write_cgns(
            sample / "meshes" / "mesh_000000000.cgns", number + np.arange(4.0), {"angle": number}
        )
        (sample / "scalars.csv").write_text(f"speed,mass\n{2 * number},1.5\n")
    cases = open_folder(tmp_path, outputs=["u"], inputs=["angle", "speed"])
    assert [case.parameters["angle"] for case in cases] == [0, 1, 2]
    assert cases[2].parameters == {"angle": 2.0, "speed": 4.0, "mass": 1.5}
    np.testing.assert_array_equal(cases[1]["u"], [1, 2, 3, 4])


def test_the_meshes_of_a_sample_of_plaid_are_its_times(tmp_path: Path) -> None:
    (tmp_path / "sample_000000000" / "meshes").mkdir(parents=True)
    for step, time in enumerate((0.5, 0.75)):
        write_cgns(
            tmp_path / "sample_000000000" / "meshes" / f"mesh_{step:09}.cgns",
            step + np.arange(4.0),
            {},
            time,
        )
    case = open_folder(tmp_path)[0]
    assert case.times is not None
    assert case.times.tolist() == [0.5, 0.75]
    np.testing.assert_array_equal(case["u"][:, 1], [1, 2, 3, 4])


def test_plaid_without_meshes_says_how_to_save_it(tmp_path: Path) -> None:
    (tmp_path / "constants").mkdir()
    (tmp_path / "infos.yaml").write_text("owner: nobody\n")
    with pytest.raises(FileError, match=r"expected a data set of PLAID as CGNS.*backend cgns"):
        open_folder(tmp_path)


# AirfRANS


def test_a_folder_of_airfrans_has_speed_and_incidence(
    plate: Callable[..., Any], tmp_path: Path
) -> None:
    names = [
        "airFoil2D_SST_58.831_-3.563_2.815_4.916_10.078",
        "airFoil2D_SST_43.597_5.932_3.551_3.1_1.0_18.252",
    ]
    for name in names:
        (tmp_path / name).mkdir()
        mesh = plate()
        mesh["p"], mesh["U"] = mesh["pressure"], mesh["velocity"]
        mesh.translate((0, 0, 0.5)).save(tmp_path / name / f"{name}_internal.vtu")
        for part in ("aerofoil", "freestream"):
            pyvista.PolyData(np.eye(3)).save(tmp_path / name / f"{name}_{part}.vtp")
    (tmp_path / "manifest.json").write_text(json.dumps({"full_train": names, "full_test": []}))
    cases = open_folder(tmp_path, outputs=["p", "U"], inputs=["speed", "incidence"])
    assert cases.names == sorted(names)
    assert [case.parameters["speed"] for case in cases] == [43.597, 58.831]
    assert [case.parameters["incidence"] for case in cases] == [5.932, -3.563]
    assert cases[0]["U"].shape == (20, 2)
    assert cases[0].weights is not None


# xarray


def by_netcdf_3(path: Path, arrays: dict[str, tuple[tuple[str, ...], np.ndarray]]) -> Path:
    with netcdf_file(path.with_suffix(".nc"), "w") as file:
        for axes, values in arrays.values():
            for axis, length in zip(axes, values.shape, strict=True):
                if axis not in file.dimensions:
                    file.createDimension(axis, length)
        for name, (axes, values) in arrays.items():
            file.createVariable(name, "d", axes)[...] = values
    return path.with_suffix(".nc")


def by_netcdf_4(path: Path, arrays: dict[str, tuple[tuple[str, ...], np.ndarray]]) -> Path:
    with h5py.File(path.with_suffix(".nc"), "w") as file:
        for name, (_, values) in arrays.items():
            file[name] = values
        for axes, values in arrays.values():
            for axis, length in zip(axes, values.shape, strict=True):
                if axis not in file:  # one without coordinates is a data set all the same
                    file[axis] = np.zeros(length, "S1")
        for name, (axes, _) in arrays.items():
            for place, axis in enumerate(axes):
                file[axis].make_scale(axis)
                if axis != name:
                    file[name].dims[place].attach_scale(file[axis])
    return path.with_suffix(".nc")


def by_zarr(path: Path, arrays: dict[str, tuple[tuple[str, ...], np.ndarray]]) -> Path:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(path.with_suffix(".zarr")), mode="w")
    for name, (axes, values) in arrays.items():
        group.create_array(name, data=values, dimension_names=axes)
    return path.with_suffix(".zarr")


AXES: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
    "time": (("time",), np.array([0.0, 0.1, 0.4, 0.5])),
    "y": (("y",), np.array([0.0, 1, 2])),
    "x": (("x",), np.array([0.0, 2, 4, 6, 8])),
}


@pytest.mark.parametrize("write", [by_netcdf_3, by_netcdf_4, by_zarr])
class TestNamedAxes:
    def test_of_one_case_are_time_and_space(
        self, write: Callable[..., Path], tmp_path: Path
    ) -> None:
        u = np.random.default_rng(0).random((4, 3, 5))
        (case,) = open_folder(write(tmp_path / "a", {**AXES, "u": (("time", "y", "x"), u)}))
        assert isinstance(case, Case)
        assert case.grid == (5, 3)
        assert case.times is not None
        np.testing.assert_array_equal(case.times, [0, 0.1, 0.4, 0.5])
        np.testing.assert_array_equal(case["u"].reshape(5, 3, 4)[4, 1], u[:, 1, 4])
        np.testing.assert_array_equal(case.positions.reshape(5, 3, 2)[4, 1], [8, 1])

    def test_of_many_cases_have_one_more_with_numbers(
        self, write: Callable[..., Path], tmp_path: Path
    ) -> None:
        u = np.random.default_rng(0).random((6, 3, 5, 2))
        arrays = {
            **{name: AXES[name] for name in ("x", "y")},
            "u": (("sample", "y", "x", "component"), u),
            "angle": (("sample",), np.arange(6.0)),
        }
        cases = open_folder(write(tmp_path / "a", arrays), outputs=["u"])
        assert len(cases) == 6
        assert cases[3].parameters == {"angle": 3.0}
        np.testing.assert_array_equal(cases[3]["u"].reshape(5, 3, 2)[4, 1], u[3, 1, 4])


# Hugging Face, and other tables with a case per row


def write_rows(path: Path, columns: dict[str, list[Any]]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(columns)
    if path.suffix == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, path, row_group_size=2)
        return path
    new = pyarrow.ipc.new_stream if path.stem.startswith("data-") else pyarrow.ipc.new_file
    with new(path, table.schema) as sink:
        sink.write_table(table, max_chunksize=2)
    return path


@pytest.mark.parametrize("name", ["data-00000-of-00001.arrow", "file.arrow", "a.parquet"])
class TestRows:
    def test_with_positions_may_differ_in_size(self, name: str, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        positions = [rng.random((n, 2)) for n in (4, 6, 5, 3, 7)]
        write_rows(
            tmp_path / name,
            {
                "positions": [each.tolist() for each in positions],
                "u": [each.sum(1).tolist() for each in positions],
                "wall": [[1] * len(each) for each in positions],
                "angle": [float(n) for n in range(5)],
                "note": ["a", "b", "c", "d", "e"],
            },
        )
        # What `datasets` keeps beside it is no case.
        (tmp_path / "dataset_info.json").write_text("{}")
        cases = open_folder(tmp_path, inputs=["angle", "wall"], outputs=["u"])
        assert [len(case) for case in cases] == [4, 6, 5, 3, 7]
        np.testing.assert_array_equal(cases[3].positions, positions[3])
        np.testing.assert_array_equal(cases[3]["u"], positions[3].sum(1))
        assert cases[3].parameters == {"angle": 3.0}
        assert cases[3].categories["wall"].tolist() == [1, 1, 1]

    def test_without_are_grids(self, name: str, tmp_path: Path) -> None:
        u = np.random.default_rng(0).random((3, 4, 5, 2))
        write_rows(tmp_path / name, {"a": u[..., 0].tolist(), "u": u.tolist(), "k": [1.0, 2, 3]})
        cases = open_folder(tmp_path)
        assert cases[1].grid == (4, 5)
        np.testing.assert_array_equal(cases[1]["u"], u[1].reshape(20, 2))
        assert cases[1].parameters == {"k": 2.0}

    def test_that_are_damaged_are_refused_by_name(self, name: str, tmp_path: Path) -> None:
        lists = [[[0.0, 1], [2, 3]], [[0.0, 1], [2]]]
        path = write_rows(tmp_path / name, {"positions": lists, "u": [[1.0, 2], [3, 4]]})
        with pytest.raises(FileError, match=rf"{name}: expected .* got lists of 1 to 2 in pos"):
            open_folder(path)[1]
        path.write_bytes(path.read_bytes()[:60])
        with pytest.raises(FileError, match=f"{name}: expected a table of Arrow or Parquet"):
            open_folder(path)


def test_a_table_of_parameters_beside_the_cases_is_no_case(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", positions=np.eye(2), u=np.ones(2))
    write_rows(tmp_path / "table.parquet", {"file": ["a"], "angle": [3.0]})
    cases = open_folder(tmp_path, parameters=tmp_path / "table.parquet")
    assert cases.names == ["a"]
    assert cases[0].parameters == {"angle": 3.0}
