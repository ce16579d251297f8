"""Small trained runs that come with the package, found by name."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
PLACES = (_PACKAGE / "pretrained", _PACKAGE.parents[1] / "models")
"""Where they are: in an installed package, and in a checkout."""


def bundled() -> dict[str, Path]:
    """Their folders by name."""
    return {
        settings.parent.name: settings.parent
        for place in PLACES
        for settings in sorted(place.glob("*/settings.json"))
    }


def run_folder(name: str | Path) -> Path:
    """The folder of a run: a path, or where no run is there, that of a bundled one of this name."""
    path = Path(name)
    if (path / "settings.json").exists() or path.is_file():
        return path
    return bundled().get(str(name), path)
