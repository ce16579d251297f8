"""Damages files of every kind that the package reads, and counts what comes of it.

    python benchmarks/mutations.py [--each 91] [--seed 0] [--only WORDS] [--out FILE]

A reading ends in one of these ways:
    same          the numbers are those of the sound file: the damage was in what nobody reads
    refused       an error of the package names the file; the command prints it as one line
    other         other numbers; files without checksums cannot do better
    wrong number  other numbers although the file has checksums
    bare error    an error of a library, or one that does not name the file
    crash, hang   the process dies, or does not come back within five minutes
The last four must not occur. Files are read in another process, which is started again where it
dies. With --out, the table is written after each kind, and the same command goes on after the kinds
that it has; remove the file to begin again.
"""

import argparse
import json
import selectors
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]
GOOD = ("same", "refused", "other")
BAD = ("wrong number", "bare error", "crash", "hang")
OUTCOMES = GOOD + BAD
PATIENCE = 300.0
"""By the clock, which goes on where the machine is busy; readings may compute for 5 seconds."""
ABSURD = [None, True, -1, 0, 10**9, 10**400, 1.5, float("nan"), float("inf"), "a", "", [], {}, [[]]]


@dataclass(frozen=True)
class Kind:
    """A kind of file: how a sound one is written, how it is read, whether damage is noticed."""

    name: str
    suffix: str
    write: Callable[[Path], None]
    read: Callable[[Path], Arrays]
    checked: bool = False
    inside: str = ""
    """Where `write` makes a folder: the file in it that is damaged, as a pattern."""
    named: bool = True
    """Whether refusals have to name the file; settings that were accepted may fail at the input."""
    unread: bool = False
    """Whether only the name of the file matters."""


def kinds() -> list[Kind]:
    """Every kind of file that the package reads, and commands that read some of them."""
    import mutated_files
    import mutated_runs

    return [*mutated_files.kinds(), *mutated_runs.kinds()]


def mutations(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Damaged copies: bits, bytes, cuts, splices, swaps of types, absurd values in JSON."""
    rng = np.random.default_rng(seed)
    swaps = [
        *((b"<f8", b"<i8"), (b"<f4", b"|O4"), (b"Float64", b"Float32"), (b"UInt64", b"Float64")),
        *((b"Int64", b"Int32"), (b"float", b"int"), (b"double", b"char"), (b"False", b"True")),
        *((b"1", b"9"), (b".", b"e"), (b"\n", b"\0"), (b"0", b"-"), (b'"', b""), (b": ", b": -")),
    ]
    for number in range(count):
        data = bytearray(content)
        place = int(rng.integers(len(data)))
        match number % 7:
            case 0:
                data[place] ^= 1 << int(rng.integers(8))
            case 1:
                data[place] = int(rng.integers(256))
            case 2:
                del data[place:]
            case 3:
                other = int(rng.integers(len(data)))
                length = int(rng.integers(1, 64))
                data[place : place + length] = data[other : other + length]
            case 4:
                width = int(rng.choice([2, 4, 8]))
                extreme = rng.choice([b"\xff", b"\x7f", b"\x80", b"\0"])
                data[place : place + width] = bytes(extreme) * width
            case 5:
                old, new = swaps[int(rng.integers(len(swaps)))]
                places = data.count(old)
                start = -1
                for _ in range(int(rng.integers(places)) + 1 if places else 0):
                    start = data.find(old, start + 1)
                if start >= 0:
                    data[start : start + len(old)] = new
            case 6:
                data = bytearray(crafted(bytes(data), rng))
        yield bytes(data)


def crafted(content: bytes, rng: np.random.Generator) -> bytes:
    """JSON with an absurd value in the place of one of its own; of other files, bytes put in."""
    lines = content.splitlines() if b"\n{" in content else [content]
    line = int(rng.integers(len(lines)))
    try:
        document = json.loads(lines[line])
    except (ValueError, RecursionError):
        place = int(rng.integers(len(content)))
        return content[:place] + rng.bytes(int(rng.integers(1, 64))) + content[place:]
    places: list[tuple[Any, Any]] = []
    below = [document]
    while below:
        each = below.pop()
        inner = each.items() if isinstance(each, dict) else enumerate(each)
        for name, value in inner:
            places.append((each, name))
            if isinstance(value, dict | list):
                below.append(value)
    if not places:
        return b"[]"
    holder, name = places[int(rng.integers(len(places)))]
    holder[name] = ABSURD[int(rng.integers(len(ABSURD)))]
    lines[line] = json.dumps(document).encode()
    return b"\n".join(lines) + b"\n"


def same(first: Arrays, second: Arrays) -> bool:
    """Whether two readings are equal to the bit."""
    if first.keys() != second.keys():
        return False
    return all(
        np.shape(first[name]) == np.shape(second[name])
        and np.array_equal(np.asarray(first[name]), np.asarray(second[name]))
        for name in first
    )


def outcome(kind: Kind, path: Path, sound: Arrays) -> tuple[str, str]:
    """What comes of reading a damaged file, and the error where it is a bad end."""
    from funcattn.cli import guard

    try:
        read = kind.read(path)
    except Exception as error:
        said = str(error)
        # What does not speak for itself would reach the last resort of the command.
        named = str(path) in said or not kind.named
        named = named and "pickle" not in said and guard.speaks_for_itself(error)
        return ("refused", "") if named else ("bare error", f"{type(error).__name__}: {said}")
    if same(read, sound):
        return "same", ""
    return ("wrong number", "other numbers") if kind.checked else ("other", "")


def attack(
    kind: Kind, folder: Path, count: int, seed: int, first: int = 0
) -> Iterator[tuple[int, str, str]]:
    """The number of each mutation from the first on, its outcome, and what was said if bad."""
    good, bad = (folder / f"{word}{kind.suffix}" for word in ("good", "bad"))
    kind.write(good)
    sound = kind.read(good)
    assert same(sound, kind.read(good)), f"{kind.name}: a sound file is not read the same twice"
    target = bad
    if kind.inside:
        shutil.copytree(good, bad)
        (target,) = bad.glob(kind.inside)
    content = (good / target.relative_to(bad) if kind.inside else good).read_bytes()
    for number, damaged in enumerate(mutations(content, count, seed)):
        if number >= first:
            target.write_bytes(damaged)
            yield number, *outcome(kind, bad, sound)


def read_apart(names: list[str], first: int, each: int, seed: int) -> None:
    """In a process of its own: attack kinds one after another, and print each outcome."""
    for kind in kinds():
        if kind.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            for number, end, words in attack(kind, Path(folder), each, seed, first):
                line = json.dumps([kind.name, number, end, words[:300]])
                sys.__stdout__.write(line + "\n")  # type: ignore[union-attr]
                sys.__stdout__.flush()  # type: ignore[union-attr]
        first = 0


def outcomes(names: list[str], each: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """Kind, outcome and words of each mutation, also of those that kill the reading process."""
    done = Counter[str]()
    while left := [name for name in names if done[name] < each]:
        command = [sys.executable, __file__, "--each", str(each), "--seed", str(seed)]
        command += ["--child", json.dumps([left, done[left[0]]])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            waiting = selectors.DefaultSelector()
            waiting.register(child.stdout, selectors.EVENT_READ)
            end = "crash"
            while True:
                if not waiting.select(PATIENCE):
                    child.kill()
                    end = "hang"
                    break
                line = child.stdout.readline()
                if not line:
                    break
                name, number, what, words = json.loads(line)
                done[name] = number + 1
                yield name, what, words
        now = next((name for name in left if done[name] < each), None)
        if now is not None:
            if end == "crash" and child.returncode > 0:
                sys.exit(f"{now}: the attack itself failed, see above")
            done[now] += 1
            yield now, end, f"mutation {done[now] - 1}: signal {-child.returncode}"


def row(name: str, counts: dict[str, int]) -> str:
    """A line of the table."""
    numbers = " ".join(f"{counts[end]:{max(len(end), 6)}}" for end in OUTCOMES)
    return f"{name:34} {sum(counts.values()):6} {numbers}"


def main() -> None:
    """Attack every kind, print the table, keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--each", type=int, default=91)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        names, first = json.loads(options.child)
        read_apart(names, first, options.each, options.seed)
        return
    from funcattn.files import write_text
    from funcattn.provenance import facts

    made = {"command": "python benchmarks/mutations.py", **facts()}
    amount = {"mutations of each kind": options.each, "seed": options.seed}
    asked = {**amount, "commit": made["commit"]}
    kept = json.loads(options.out.read_text()) if options.out and options.out.exists() else asked
    if {name: kept.get(name) for name in asked} != asked:
        parser.error(f"{options.out} is of another number of mutations, seed or commit; remove it")
    table: dict[str, dict[str, int]] = kept.get("kinds", {})
    names = [kind.name for kind in kinds() if options.only in kind.name]
    print(f"{'kind':34} {'files':>6} " + " ".join(f"{end:>6}" for end in OUTCOMES))
    for name in names:
        if name in table:
            print(row(name, table[name]))
    counts = {name: dict.fromkeys(OUTCOMES, 0) for name in names}
    for name, end, words in outcomes([n for n in names if n not in table], *amount.values()):
        counts[name][end] += 1
        if words:
            print(f"    {name}: {end}: {words}", flush=True)
        if sum(counts[name].values()) == options.each:
            table[name] = counts[name]
            print(row(name, table[name]), flush=True)
            if options.out:
                text = json.dumps({**asked, **made, "kinds": table}, indent=1)
                write_text(options.out, text + "\n")
    total = {end: sum(each[end] for each in table.values()) for end in OUTCOMES}
    print(row("all", total))
    sys.exit(any(total[end] for end in BAD))


if __name__ == "__main__":
    main()
