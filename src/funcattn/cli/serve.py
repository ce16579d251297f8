"""`funcattn serve`."""

import ipaddress
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from rich.console import Console
from uvicorn.supervisors import Multiprocess

from funcattn.cli import commands
from funcattn.cli.terminal import refuse
from funcattn.fitting.served import served
from funcattn.processes import end_with_pool, free_cores
from funcattn.serve.app import create_app
from funcattn.serve.limits import Access, Limits
from funcattn.serve.model import ServedModel
from funcattn.training.bundled import bundled

if TYPE_CHECKING:
    from fastapi import FastAPI

TOKEN, PLAN = "FUNCATTN_TOKEN", "FUNCATTN_SERVE"
"""Environment variables: the token, and what the workers are to serve."""
GRACE = 10
"""Seconds that requests have to end after SIGTERM."""
_APPLICATION = "funcattn.cli.serve:application"
_METRICS = "PROMETHEUS_MULTIPROC_DIR"


@dataclass(frozen=True)
class Serve(commands.Serve):
    """`funcattn serve`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Listen until SIGTERM or Ctrl-C."""
        refuse(rest)
        limits = self._limits()
        token = self.token or os.environ.get(TOKEN, "")
        local = _is_loopback(self.host)
        if not (token or local):
            raise ValueError(
                f"host: expected 127.0.0.1 without a token, got {self.host}; give one by the "
                f"environment variable {TOKEN}"
            )
        runs = self.runs or [str(folder) for folder in bundled().values()]
        if not runs:
            raise ValueError(
                "runs: expected a folder of a run, got none, and no run comes with this copy of "
                "funcattn; train one: funcattn train darcy --out runs/darcy"
            )
        # A run that cannot be served is refused here, and not by every worker again and again.
        models = [served(folder) for folder in runs]
        names = [model.name for model in models]
        if len(set(names)) < len(names):
            raise ValueError(f"runs: expected folders with different names, got {', '.join(names)}")
        # The server hands the signal on when it has ended; the folder below is to go too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with (
            tempfile.TemporaryDirectory(prefix="funcattn-serve-") as folder,
            _listening(self.host, self.port) as listener,
        ):
            plan = {
                "runs": [str(Path(run).resolve()) if Path(run).exists() else run for run in runs],
                "folder": folder,
                "limits": asdict(limits),
                "origins": self.allow_origin,
                "hosts": () if token else ("127.0.0.1", "localhost", "::1", self.host),
                "threads": self.threads or max(1, free_cores() // self.workers),
            }
            Path(folder, "jobs").mkdir()
            os.environ |= {PLAN: json.dumps(plan), TOKEN: token}
            port = listener.getsockname()[1]
            host = f"[{self.host}]" if ":" in self.host else self.host
            who = "with the token" if token else "from this machine only; a token opens it"
            console.print(
                f"{', '.join(names)}: http://{host}:{port} ({who})",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
            # A single process has the models already.
            app = _created(plan, models) if self.workers == 1 else _APPLICATION
            self._listen(listener, folder, app)

    def _limits(self) -> Limits:
        for name in ("workers", "max_points", "max_body", "queue", "timeout", "solve_timeout"):
            if not getattr(self, name) > 0:
                option = name.replace("_", "-")
                raise ValueError(f"--{option}: expected more than 0, got {getattr(self, name)}")
        if self.threads < 0 or not 0 <= self.port < 65536:
            raise ValueError(
                f"--threads, --port: expected 0 or more, and a port below 65536, got "
                f"{self.threads} and {self.port}"
            )
        return Limits(
            points=self.max_points,
            body=self.max_body * 2**20,
            queue=self.queue,
            seconds=self.timeout,
            solve_seconds=self.solve_timeout,
            jobs=max(1, (os.cpu_count() or 1) // self.workers),
        )

    def _listen(self, listener: socket.socket, folder: str, app: "FastAPI | str") -> None:
        config = uvicorn.Config(
            app,
            factory=isinstance(app, str),
            workers=self.workers,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="on",
            limit_concurrency=16 * self.queue,
            timeout_keep_alive=20,
            timeout_graceful_shutdown=GRACE,
            timeout_worker_healthcheck=60,
        )
        if self.workers == 1:
            uvicorn.Server(config).run(sockets=[listener])
            return
        counts = Path(folder, "counts")
        counts.mkdir()
        os.environ[_METRICS] = str(counts)
        Multiprocess(config, sockets=[listener]).run()


def application() -> "FastAPI":
    """The service as its plan in the environment says; called in each worker."""
    if parent_process() is not None:
        end_with_pool()
    plan: dict[str, Any] = json.loads(os.environ[PLAN])
    return _created(plan, [served(folder) for folder in plan["runs"]])


def _created(plan: Mapping[str, Any], models: Sequence[ServedModel]) -> "FastAPI":
    return create_app(
        {model.name: model for model in models},
        folder=Path(plan["folder"], "jobs"),
        limits=Limits(**plan["limits"]),
        access=Access(os.environ.get(TOKEN, ""), tuple(plan["origins"]), tuple(plan["hosts"])),
        threads=plan["threads"],
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int) -> socket.socket:
    """A socket at an address."""
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    # By its protocol, asyncio knows that it is of TCP, and sends short answers without delay.
    listener = socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise ValueError(
            f"{host}:{port}: expected an address of this machine with a free port, got "
            f"{error.strerror}; choose another by --port"
        ) from error
    return listener
