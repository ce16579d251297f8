"""Figures as files."""

from pathlib import Path

import matplotlib.image
from matplotlib.figure import Figure

from funcattn.viz.saving import write_figure


def test_a_figure_is_the_same_bytes_again(tmp_path: Path) -> None:
    written = []
    for name in ("a", "b"):
        figure = Figure()
        figure.subplots().scatter([1, 2], [3, 4])
        saved = write_figure(figure, tmp_path / name / "c")
        assert saved == [tmp_path / name / "c.png", tmp_path / name / "c.svg"]
        written.append([path.read_bytes() for path in saved])
        assert len([*(tmp_path / name).iterdir()]) == 2
    assert written[0] == written[1]
    assert matplotlib.image.imread(tmp_path / "a/c.png").std() > 0
