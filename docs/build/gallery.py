"""The tutorials: scripts in examples/ as pages, as notebooks, and as pictures.

    python docs/build/gallery.py            notebooks, from the scripts
    python docs/build/gallery.py --run      the pictures too: runs all scripts, about ten minutes
    python docs/build/gallery.py --run darcy

A script has cells: `# %% [markdown]` begins words, `# %%` code. It ends with a figure.
"""

import argparse
import re
import runpy
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES, NOTEBOOKS = ROOT / "examples", ROOT / "examples" / "notebooks"
PICTURES = ROOT / "docs" / "pictures" / "gallery"
NAMES = (
    "own_network",
    "darcy",
    "elasticity",
    "own_vtu_folder",
    "two_fields_in_time",
    "few_shot_bands",
    "million_points",
    "public_checkpoint",
)
"""In the order of the page."""


def cells(name: str) -> list[tuple[str, str]]:
    """The parts of a script: ("words" or "code", text)."""
    parts = re.split(r"^# %%(.*)\n", (EXAMPLES / f"{name}.py").read_text(), flags=re.MULTILINE)
    found = []
    for mark, text in zip(parts[1::2], parts[2::2], strict=True):
        if "[markdown]" not in mark:
            found.append(("code", text.strip("\n")))
        elif text.startswith('"""'):
            found.append(("words", text.strip().strip('"').strip()))
        else:
            found.append(("words", re.sub(r"^# ?", "", text, flags=re.MULTILINE).strip()))
    return found


def title(name: str) -> str:
    """The heading of a tutorial."""
    return cells(name)[0][1].splitlines()[0].removeprefix("# ")


def page(name: str) -> str:
    """A tutorial as a page of the site."""
    (_, opening), *rest = cells(name)
    parts = [
        opening,
        f"![{title(name)}](../pictures/gallery/{name}.png)",
        f"Run it: [script](../../examples/{name}.py), "
        f"[notebook](../../examples/notebooks/{name}.ipynb). It takes less than two minutes on one "
        "core, and a test checks the number that it ends with.",
    ]
    parts += [text if kind == "words" else f"```python\n{text}\n```" for kind, text in rest]
    return "\n\n".join(parts) + "\n"


def cards() -> str:
    """All tutorials as pictures with their names."""
    found = "\n\n".join(
        f"[![](../pictures/gallery/{name}.png) {title(name)}]({name}.md)" for name in NAMES
    )
    return f'<div class="gallery" markdown>\n\n{found}\n\n</div>'


def notebook(name: str) -> str:
    """A tutorial as a notebook without outputs, the same bytes whenever it is made."""
    import jupytext
    import nbformat

    made = jupytext.read(EXAMPLES / f"{name}.py", fmt="py:percent")
    for number, cell in enumerate(made.cells):
        cell["id"] = f"cell-{number}"
        cell.metadata.clear()
    made.metadata = nbformat.from_dict(
        {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    )
    return nbformat.writes(made) + "\n"


def main() -> None:
    """Write notebooks, and on request pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="which tutorials; default: all")
    parser.add_argument("--run", action="store_true", help="run them, for their pictures")
    asked = parser.parse_args()
    NOTEBOOKS.mkdir(exist_ok=True)
    PICTURES.mkdir(exist_ok=True, parents=True)
    for name in asked.names or NAMES:
        (NOTEBOOKS / f"{name}.ipynb").write_text(notebook(name))
        if asked.run:
            started = time.process_time()
            figure = runpy.run_path(str(EXAMPLES / f"{name}.py"))["figure"]
            figure.savefig(PICTURES / f"{name}.png", dpi=100)
            print(f"{name}: {time.process_time() - started:.0f} CPU seconds")


if __name__ == "__main__":
    main()
