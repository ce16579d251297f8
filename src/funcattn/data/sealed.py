"""Files that end with a digest of themselves, which is compared before any library looks at them.

HDF5 has checksums of chunks, but none of the index that says where each chunk is, and damage there
can give other numbers, or end the process. What comes after the end of its content HDF5 ignores.
"""

import hashlib
import os
from functools import lru_cache
from pathlib import Path

_MARK = b"\nfuncattn sha256 "
_LENGTH = len(_MARK) + 64


def seal(path: Path) -> None:
    """Add the digest of a file to its end."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    with path.open("ab") as stream:
        stream.write(_MARK + digest.encode())


def check_seal(path: Path) -> bool:
    """Whether a file has a digest at its end, which then has to be right; looked at once.

    Raises:
        ValueError: the file is not as it was written.
    """
    facts = path.stat()
    return _right(path, facts.st_size, facts.st_mtime_ns, facts.st_ino)


@lru_cache(maxsize=1024)
def _right(path: Path, size: int, *_: int) -> bool:
    if size < _LENGTH:
        return False
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        stream.seek(-_LENGTH, os.SEEK_END)
        end = stream.read(_LENGTH)
        if not end.startswith(_MARK):
            return False
        stream.seek(0)
        left = size - _LENGTH
        while left > 0 and (part := stream.read(min(left, 2**24))):
            digest.update(part)
            left -= len(part)
    if end.removeprefix(_MARK) != digest.hexdigest().encode():
        raise ValueError("its checksum is another: it was altered after it was written")
    return True
