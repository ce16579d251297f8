from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.io import netcdf_file

from funcattn.data.cases import open_folder
from funcattn.data.foreign import FileError, write_hdf5
from funcattn.data.matlab import write_matlab

Arrays = dict[str, np.ndarray]


def by_npz(path: Path, arrays: Arrays) -> Path:
    np.savez(path.with_suffix(".npz"), **arrays)
    return path.with_suffix(".npz")


def by_hdf5(path: Path, arrays: Arrays) -> Path:
    write_hdf5(path.with_suffix(".h5"), arrays, units={"u": "m/s"})
    return path.with_suffix(".h5")


def by_matlab(path: Path, arrays: Arrays) -> Path:
    write_matlab(path.with_suffix(".mat"), arrays)
    return path.with_suffix(".mat")


def by_matlab_73(path: Path, arrays: Arrays) -> Path:
    write_matlab(path.with_suffix(".mat"), arrays, format="7.3")
    return path.with_suffix(".mat")


def by_zarr(path: Path, arrays: Arrays) -> Path:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(path.with_suffix(".zarr")), mode="w")
    for name, each in arrays.items():
        group.create_array(name, data=each)
    return path.with_suffix(".zarr")


def by_netcdf(path: Path, arrays: Arrays) -> Path:
    with netcdf_file(path.with_suffix(".nc"), "w") as file:
        for name, each in arrays.items():
            axes = [f"{name}{k}" for k in range(each.ndim)]
            for axis, length in zip(axes, each.shape, strict=True):
                file.createDimension(axis, length)
            file.createVariable(name, "d", axes)[:] = each
    return path.with_suffix(".nc")


KINDS = [by_npz, by_hdf5, by_matlab, by_matlab_73, by_zarr, by_netcdf]


@pytest.mark.parametrize("write", KINDS)
def test_many_cases_in_one_file_are_rows(
    write: Callable[[Path, Arrays], Path], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    arrays = {"a": rng.normal(size=(5, 8, 6)), "u": rng.normal(size=(5, 8, 6, 2))}
    file = write(tmp_path / "all", arrays)
    cases = open_folder(file, inputs=["a"], outputs=["u"])
    assert len(cases) == 5
    assert cases[3].grid == (8, 6)
    np.testing.assert_array_equal(cases[3]["u"], arrays["u"][3].reshape(48, 2))


@pytest.mark.parametrize("write", KINDS)
def test_a_folder_of_files_with_a_case_each(
    write: Callable[[Path, Arrays], Path], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    for number in range(3):
        n = 5 + number
        arrays = {"positions": rng.normal(size=(n, 2)), "u": rng.normal(size=(n, 3))}
        write(tmp_path / f"case_{number}", arrays)
    cases = open_folder(tmp_path, outputs=["u"])
    assert cases.names == ["case_0", "case_1", "case_2"]
    assert [len(case) for case in cases] == [5, 6, 7]
    assert cases[2]["u"].shape == (7, 3)


def test_units_come_along(tmp_path: Path) -> None:
    file = by_hdf5(tmp_path / "a", {"positions": np.eye(3), "u": np.ones(3)})
    assert open_folder(file)[0].units == {"u": "m/s"}


def test_packed_netcdf_numbers_are_unpacked(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file["u"] = np.array([[1, 2], [3, -9]], np.int16)
        file["u"].attrs["scale_factor"] = 0.5
        file["u"].attrs["add_offset"] = 10.0
        file["u"].attrs["_FillValue"] = np.int16(-9)
    cases = open_folder(tmp_path / "a.nc", outputs=["u"])
    np.testing.assert_array_equal(cases[0]["u"], [10.5, 11.0])
    np.testing.assert_array_equal(cases[1]["u"], [11.5, np.nan])


class TestPdebench:
    def test_a_tensor_with_coordinates(self, tmp_path: Path) -> None:
        tensor = np.random.default_rng(0).normal(size=(4, 5, 16)).astype(np.float32)
        with h5py.File(tmp_path / "1D_Burgers.hdf5", "w") as file:
            file["tensor"] = tensor
            file["x-coordinate"] = np.linspace(0, 1, 16)
            file["t-coordinate"] = np.linspace(0, 2, 6)  # one more than frames
        case = open_folder(tmp_path / "1D_Burgers.hdf5")[2]
        assert case.times is not None
        np.testing.assert_allclose(case.times, [0, 0.4, 0.8, 1.2, 1.6])
        np.testing.assert_array_equal(case["tensor"], tensor[2].T)

    def test_darcy_is_steady(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "2D_Darcy.hdf5", "w") as file:
            file["nu"] = np.ones((3, 8, 6))
            file["tensor"] = np.zeros((3, 1, 8, 6))
            file["x-coordinate"] = np.linspace(0, 1, 8)
            file["y-coordinate"] = np.linspace(0, 1, 6)
        case = open_folder(tmp_path / "2D_Darcy.hdf5", inputs=["nu"], outputs=["tensor"])[0]
        assert case.times is None
        assert case.grid == (8, 6)
        assert case["tensor"].shape == (48,)

    def test_a_group_per_case(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "2D_diff-react.h5", "w") as file:
            for number in range(2):
                file[f"{number:04}/data"] = np.full((3, 8, 6, 2), number)
                file[f"{number:04}/grid/x"] = np.arange(8.0)
                file[f"{number:04}/grid/y"] = np.arange(6.0)
                file[f"{number:04}/grid/t"] = np.arange(3.0)
        cases = open_folder(tmp_path / "2D_diff-react.h5")
        assert len(cases) == 2
        assert cases[1]["data"].shape == (48, 3, 2)
        assert cases[1]["data"].min() == 1


def test_the_well_is_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    density, velocity = rng.normal(size=(2, 4, 8, 6)), rng.normal(size=(2, 4, 8, 6, 2))
    with h5py.File(tmp_path / "flow.hdf5", "w") as file:
        file["t0_fields/density"] = density
        file["t1_fields/velocity"] = velocity
        file["dimensions/x"] = np.arange(8.0)
        file["dimensions/y"] = np.arange(6.0)
        file["dimensions/time"] = np.arange(4.0)
        file["scalars/viscosity"] = 0.1
    case = open_folder(tmp_path / "flow.hdf5")[1]
    assert case.parameters == {"viscosity": 0.1}
    np.testing.assert_array_equal(case["density"], density[1].reshape(4, 48).T)
    np.testing.assert_array_equal(case["velocity"][:, 2], velocity[1, 2].reshape(48, 2))


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".h5", ".mat", ".nc"])
def test_text_under_another_name_is_refused_without_unsafe_advice(
    suffix: str, tmp_path: Path
) -> None:
    (tmp_path / f"a{suffix}").write_text("positions 1 2 3\n" * 40)
    with pytest.raises(FileError, match=f"a\\{suffix}: expected") as caught:
        open_folder(tmp_path)
    assert "pickle" not in str(caught.value)
