from pathlib import Path

import pytest

from funcattn.models import MODELS
from funcattn.models.table import table, with_table

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_the_page_of_the_networks_has_todays_table() -> None:
    """If not: python -m funcattn.models.table docs/models.md."""
    assert with_table(PAGE.read_text()) == PAGE.read_text()


def test_every_network_has_a_row() -> None:
    rows = table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(MODELS)
    assert len({row.count("|") for row in rows}) == 1


def test_the_readme_knows_how_many_there_are() -> None:
    assert (
        f"[the {len(MODELS)} networks](docs/models.md)"
        in (PAGE.parents[1] / "README.md").read_text()
    )


def test_a_page_without_a_place_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match="page: expected the markers"):
        with_table("# Networks\n")
