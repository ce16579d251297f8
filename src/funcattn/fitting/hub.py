"""Surrogates on the Hugging Face Hub: the files of a run, and a card made from its record.

What comes from there is treated as any file of others: only files that a run has are fetched, their
sizes and checksums are compared before anything is read, and nothing is ever unpickled.
"""

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from funcattn.errors import FuncattnError
from funcattn.fitting.packing import MOST_BYTES, MOST_FILES, copy_run

if TYPE_CHECKING:
    from funcattn.fitting.fitted import FittedSurrogate

SCHEME = "hf://"
_ADDRESS = re.compile(r"hf://([\w.-]{1,96}/[\w.-]{1,96})(?:@([\w./-]{1,200}))?")
_FILE = re.compile(
    r"(checkpoints/best-\d{1,18}/\w{1,99}\.(safetensors|json))"
    r"|(\w{1,99}\.(json|jsonl|npy))"
)
"""What a run reads when it predicts; its report, and what others may have added, stay there."""


class HubError(FuncattnError):
    """The Hub cannot be reached, or has no such run."""


def is_address(run: str) -> bool:
    """Whether this names something on the Hub."""
    return run.startswith(SCHEME)


def push(
    surrogate: "FittedSurrogate", name: str, *, private: bool, token: str | None, message: str
) -> str:
    """Upload the run of a surrogate; the address of the commit."""
    hub = _hub()
    if not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", name):
        raise ValueError(f"name: expected 'user/name', got {name!r}")
    words = message or f"Surrogate by funcattn, test error {_error(surrogate)}"
    with tempfile.TemporaryDirectory(prefix="funcattn-") as temporary:
        folder = Path(temporary)
        copy_run(surrogate.run.folder, folder)
        (folder / "README.md").write_text(card(surrogate, name), encoding="utf-8")
        try:
            api = hub.HfApi(token=token)
            api.create_repo(name, private=private, exist_ok=True)
            done = api.upload_folder(repo_id=name, folder_path=folder, commit_message=words)
        except (OSError, hub.errors.HfHubHTTPError) as error:
            raise HubError(
                f"{name}: expected the Hub to take the run, got: {error}. Log in by `hf auth "
                "login`, or give a token that may write there"
            ) from error
    return str(done.commit_url)


def fetched(address: str) -> Path:
    """The folder of a run that was on the Hub, from its cache where it is there already."""
    hub = _hub()
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        raise ValueError(f"expected hf://user/name or hf://user/name@REVISION, got {address!r}")
    name, revision = parts.groups()
    try:
        info = hub.HfApi().model_info(name, revision=revision, files_metadata=True)
        wanted = {
            each.rfilename: each.size or 0
            for each in info.siblings or ()
            if _FILE.fullmatch(each.rfilename)
        }
        _check(address, wanted)
        folder = hub.snapshot_download(name, revision=info.sha, allow_patterns=sorted(wanted))
    except (OSError, hub.errors.HfHubHTTPError) as error:
        raise HubError(
            f"{address}: expected a run on the Hub, got: {error}. Check the name, the connection, "
            "and for private ones `hf auth login`"
        ) from error
    return Path(folder)


def _check(address: str, files: dict[str, int]) -> None:
    """Refuse what is no run, or would fill the disk."""
    if "settings.json" not in files:
        raise HubError(
            f"{address}: expected the files of a run, got none of settings.json; take a repository "
            "that Surrogate.push_to_hub made"
        )
    if len(files) > MOST_FILES or sum(files.values()) > MOST_BYTES:
        raise HubError(
            f"{address}: expected a run of at most {MOST_FILES} files and {MOST_BYTES:,} bytes, "
            f"got {len(files)} files of {sum(files.values()):,} bytes"
        )


def _error(surrogate: "FittedSurrogate") -> str:
    return f"{surrogate.run.record['test']['error']:.2%}"


def card(surrogate: "FittedSurrogate", name: str) -> str:
    """The page of a surrogate on the Hub, from its record."""
    own, run = surrogate.data, surrogate.run
    record, settings = run.record, run.settings
    errors = {"this surrogate": record["test"]["error"]}
    errors |= {name: each["error"] for name, each in surrogate.comparison.items()}
    rows = "\n".join(f"| {who} | {error:.2%} |" for who, error in errors.items())
    inputs = ", ".join(_named(each) for each in own.inputs) or "the geometry alone"
    versions = ", ".join(f"{what} {version}" for what, version in record["versions"].items())
    remarks = "".join(f"{said}\n\n" for said in surrogate.remarks())
    return f"""---
library_name: funcattn
tags: [funcattn, surrogate, pde, operator-learning]
---

# {name.partition("/")[2]}

A surrogate: from **{inputs}** to **{", ".join(_named(each) for each in own.outputs)}**.

```python
import funcattn

surrogate = funcattn.load("hf://{name}")
surrogate.predict(...)  # what it was fitted to, without the outputs
```

## How well

Test errors, over the deviation of each field in training, of {own.test} cases that were read once;
{own.train} cases to train with, {own.validation} to choose the epoch.

| prediction | error |
| --- | --- |
{rows}

{remarks}It is as good as this for inputs like those of its training; `surrogate.outside(...)` says
where others lie outside of them.

## How it was made

Network {settings.model}, {record["parameters"]:,} parameters, seed {settings.seed}, best epoch
{record["best_epoch"]}, {record["seconds"]:.0f} seconds. Commit {record["commit"]};
{record["machine"]}; {versions}.

The files are tensors and JSON, with checksums. Loading them runs no code of theirs.
"""


def _named(field: Any) -> str:
    return f"{field.name} [{field.unit}]" if getattr(field, "unit", "") else str(field.name)


def _hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the Hugging Face Hub needs huggingface_hub, which is not installed: "
            "pip install 'funcattn[hub]'"
        ) from error
    return huggingface_hub
