"""What the service allows."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds on what is asked, each of which can be set."""

    points: int = 300_000
    """Of one question."""
    body: int = 64 * 2**20
    """Bytes of a request."""
    queue: int = 64
    """Questions that are worked on or wait, per worker; more are told to come again."""
    seconds: float = 30.0
    """That a request may take, the reading of its body included."""
    solve_seconds: float = 600.0
    """That a job may take."""
    jobs: int = 2
    """Jobs at a time, per worker."""

    def __post_init__(self) -> None:
        for name in ("points", "body", "queue", "seconds", "solve_seconds", "jobs"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: expected more than 0, got {getattr(self, name)}")


@dataclass(frozen=True)
class Access:
    """Who may ask."""

    token: str = ""
    """Asked for with every request, where it is not empty."""
    origins: tuple[str, ...] = ()
    """Pages of other hosts that may ask, such as https://example.org."""
    hosts: tuple[str, ...] = ()
    """Names by which the service may be called; empty: any."""
