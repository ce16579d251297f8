"""Writes docs/hardening.md from results/mutations.json and results/kills.json.

python benchmarks/hardening_page.py
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mutations import BAD, OUTCOMES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "hardening.md"
HEAD = """# Damaged files and kills

This page is written by `python benchmarks/hardening_page.py` from `results/mutations.json` and
`results/kills.json`. What is promised, and what is not, says [SECURITY.md](../SECURITY.md).

"""


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown; numbers to the right."""
    lines = [f"| {' | '.join(headers)} |", "| --- |" + " ---: |" * (len(headers) - 1)]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def made_by(kept: dict[str, Any]) -> str:
    """The command, the seed, the commit and the machine of a record."""
    versions = ", ".join(f"{name} {number}" for name, number in kept["versions"].items())
    return (
        f"Command `{kept['command']}`, seed {kept['seed']}, commit {kept['commit']}, "
        f"{kept['machine']}, {versions}.\n"
    )


def damaged_files(kept: dict[str, Any]) -> str:
    """The outcomes of reading damaged files."""
    kinds = kept["kinds"]
    total = {end: sum(counts[end] for counts in kinds.values()) for end in OUTCOMES}
    rows = [
        [name, sum(counts.values()), *(counts[end] for end in OUTCOMES)]
        for name, counts in [*kinds.items(), ("all", total)]
    ]
    return f"""## {sum(total.values()):,} damaged files

Sound files of {len(kinds)} kinds, each damaged {kept["mutations of each kind"]} times: a bit,
a byte, extreme bytes, a cut, a splice, a type or sign for another, an absurd value in JSON, bytes
put in.
*Same*: the damage was in what nobody reads. *Refused*: one line names the file and says what to do.
*Other*: other numbers from a file that has no checksum, or that was said to be edited on purpose.
The last four must not occur: {", ".join(f"{total[end]} times {end}" for end in BAD)}.

{table(["kind", "files", *OUTCOMES], rows)}
{made_by(kept)}"""


def kills(kept: dict[str, Any]) -> str:
    """How often commands were killed, and where."""
    jobs = kept["jobs"]
    stages = sorted({stage for job in jobs.values() for stage in job["stages"]})
    rows = [
        [name, job["kills"], *(job["stages"].get(stage, 0) for stage in stages), job["ends"]]
        for name, job in jobs.items()
    ]
    numbers = zip(*(row[1:] for row in rows), strict=True)
    sums = ["all", *(sum(column) for column in numbers)]
    return f"""## {sums[1]} kills

Commands of profile smoke are killed by `kill -9` at moments that are drawn, and started again until
they come to their end. Every end had the numbers of the command that nobody disturbed, to the
bit: tests, histories and weights of trainings, the samples of data sets, the lines of experiments
and races. Of the bench, which measures time, what was measured before a kill was kept.

{table(["command", "kills", *stages, "ends"], [*rows, sums])}
{made_by(kept)}"""


def page() -> str:
    """The whole page."""
    read = {name: json.loads((ROOT / f"results/{name}.json").read_text())
            for name in ("mutations", "kills")}  # fmt: skip
    return f"{HEAD}{damaged_files(read['mutations'])}\n{kills(read['kills'])}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
