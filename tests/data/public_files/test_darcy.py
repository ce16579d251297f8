"""Darcy has two files, one for training and one for tests, which are found by any of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat

TRAIN, TEST = "piececonst_r421_N1024_smooth1.mat", "piececonst_r421_N1024_smooth2.mat"
pytestmark = pytest.mark.parametrize("benchmark", ["darcy"], indirect=True)


@pytest.mark.parametrize("given", ["", TRAIN, TEST], ids=["folder", "train", "test"])
def test_both_files_are_found_by_any_of_them(tmp_path: Path, benchmark: Any, given: str) -> None:
    few = {name: array[:3] for name, array in benchmark.arrays(seed=0).items()}
    parts = {"train": (TRAIN, few), "test": (TEST, benchmark.arrays(seed=1))}
    for part, (file, arrays) in parts.items():
        assert benchmark.write(tmp_path / given, arrays, part) == [tmp_path / file]
        stored = loadmat(tmp_path / file)
        np.testing.assert_array_equal(stored["coeff"], arrays["permeability"])
        np.testing.assert_array_equal(stored["sol"], arrays["pressure"])
    for part, (_, arrays) in parts.items():
        benchmark.assert_read(arrays, tmp_path / given, part)
    assert benchmark.measure(tmp_path / given) == {"train": 3, "test": 5}


def test_unknown_part_is_refused(folder: Path, benchmark: Any) -> None:
    message = "part: expected one of train, test, got 'validation'"
    with pytest.raises(ValueError, match=message):
        benchmark.read(folder, "validation")
    with pytest.raises(ValueError, match=message):
        benchmark.write(folder, benchmark.arrays(), "validation")
