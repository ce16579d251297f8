"""Kinds of options that several commands have, with what their help says."""

from pathlib import Path
from typing import Annotated

import tyro

from funcattn.processes import free_cores
from funcattn.settings import Preset, Profile

WORKERS = free_cores()
Name = Annotated[str, tyro.conf.Positional]
File = Annotated[Path, tyro.conf.Positional]
Output = Annotated[Path, tyro.conf.arg(aliases=["-o"])]
Page = Annotated[Path | None, tyro.conf.arg(aliases=["-o"])]
AcceptEdited = Annotated[
    bool,
    tyro.conf.arg(
        help="Take the files of the run as they are, though they were changed after training."
    ),
]
Cache = Annotated[
    Path,
    tyro.conf.arg(help="Where made data is kept; also the environment variable FUNCATTN_CACHE."),
]
Device = Annotated[str, tyro.conf.arg(help="Where to compute: auto, cpu, cuda, cuda:1, mps.")]
Recipe = Annotated[
    Preset, tyro.conf.arg(help="How trained: by Muon and AdamW, or as in the paper.")
]
Size = Annotated[
    Profile,
    tyro.conf.arg(help="How large: as in the paper (wants a GPU), for two cores, or tiny."),
]
Workers = Annotated[
    int, tyro.conf.arg(help="Processes that make samples; they change nothing in the result.")
]
