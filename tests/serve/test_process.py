"""The service as a process of its own: signals, workers, clients that misbehave."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil
import pytest

ASKED = {"parameters": {"permeability": [[3, 12], [3, 3]]}}
LONG = {"parameters": {"heights": [0, 8, 0, 8, 0, 8, 0, 8]}, "refine": 4}
Start = Callable[..., "Served"]


class Served:
    """A service that runs."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", said)
        assert found, said + process.communicate()[1]
        self.port = int(found[1])
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=300)

    def number(self, name: str) -> float:
        """A count of its metrics."""
        lines = self.client.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    @contextmanager
    def connection(self, head: bytes) -> Iterator[socket.socket]:
        """A connection after some bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=300) as connected:
            connected.sendall(head)
            yield connected


@pytest.fixture
def start(
    runs: Mapping[str, Path], started: "list[subprocess.Popen[Any]]", tmp_path: Path
) -> Iterator[Start]:
    """`start("--workers", "2")`: a service of three models; its temporary files go to tmp_path."""
    clients = []

    def begun(*options: str) -> Served:
        folders = [str(runs[name]) for name in ("darcy", "plasticity", "elasticity")]
        process = subprocess.Popen(
            [sys.executable, "-m", "funcattn", "serve", *folders, "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "200"},
        )
        started.append(process)
        served = Served(process)
        clients.append(served.client)
        return served

    yield begun
    for client in clients:
        client.close()


def head(length: int) -> bytes:
    return (
        "POST /models/darcy/predict HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def test_clients_that_hang_up_or_are_slow_disturb_nobody_and_sigterm_ends_in_good_order(
    start: Start, until: Callable[..., None], is_gone: Callable[[int], bool], tmp_path: Path
) -> None:
    served = start("--timeout", "3")
    body = json.dumps(ASKED).encode()
    truth = served.client.post("/models/darcy/predict", json=ASKED).json()["outputs"]

    # Some hang up: in the middle of a body, after it, and in the middle of an answer.
    for sent in (head(len(body)) + body[:10], head(len(body)) + body, head(10**6)):
        for _ in range(5):
            with served.connection(sent):
                pass
    # All of them were seen, and none is left that the next question could share a batch with.
    until(lambda: served.number('funcattn_requests_total{method="POST"') == 16)
    until(lambda: served.number("funcattn_questions ") == 0)

    # One is slow: it is told so after three seconds, while others are answered.
    with served.connection(head(len(body)) + body[:10]) as slow:
        again = served.client.post("/models/darcy/predict", json=ASKED).json()["outputs"]
        assert again == truth
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")

    # A request that has begun and a job that runs are finished after SIGTERM; others are refused.
    job = served.client.post(
        "/models/elasticity/solve", json={"parameters": {"radii": [0.3] * 11}}
    ).json()["job"]
    told: list[str] = []

    def listen() -> None:
        with httpx.stream(
            "GET", f"http://127.0.0.1:{served.port}/jobs/{job}/events", timeout=300
        ) as stream:
            told.extend(line for line in stream.iter_lines() if line.startswith("event"))

    listener = threading.Thread(target=listen)
    listener.start()
    until(lambda: told)
    with served.connection(head(len(body)) + body[:10]) as begun:
        # This one, the job's listener, and the one that asks.
        until(lambda: served.number("funcattn_begun_requests") == 3)
        served.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        begun.sendall(body[10:])
        answer = b""
        while part := begun.recv(2**16):
            answer += part
        assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
    listener.join()
    assert told[-1] == "event: result"
    assert served.process.wait(timeout=60) == 0
    with pytest.raises(OSError, match=r"refused|reset"):
        socket.create_connection(("127.0.0.1", served.port), timeout=5).close()
    until(lambda: is_gone(served.process.pid))
    assert not list(tmp_path.iterdir())
    assert served.process.stderr is not None
    assert "Traceback" not in served.process.stderr.read()


@pytest.mark.full
def test_workers_share_jobs_are_replaced_and_end_together(
    start: Start, until: Callable[..., None], is_gone: Callable[[int], bool], tmp_path: Path
) -> None:
    served = start("--workers", "2", "--timeout", "60")
    truth = served.client.post("/models/darcy/predict", json=ASKED).json()["outputs"]
    begun = served.client.post(
        "/models/elasticity/solve", json={"parameters": {"radii": [0.3] * 11}}
    )
    # Whichever worker is asked: each connection may meet another one.
    for _ in range(6):
        with httpx.Client(base_url=str(served.client.base_url), timeout=300) as other:
            said = other.get(f"/jobs/{begun.json()['job']}/events").text
            assert "event: result" in said
    long = served.client.post("/models/plasticity/solve", json=LONG).json()["job"]
    with httpx.Client(base_url=str(served.client.base_url), timeout=300) as other:
        assert other.delete(f"/jobs/{long}").status_code == 204
        assert "cancelled" in other.get(f"/jobs/{long}/events").text

    def workers() -> list[psutil.Process]:
        found = []
        for child in psutil.Process(served.process.pid).children():
            with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
                if "spawn_main" in " ".join(child.cmdline()):
                    found.append(child)
        return found

    first = workers()
    assert len(first) == 2
    first[0].kill()
    until(lambda: len([each for each in workers() if each.pid != first[0].pid]) == 2)
    # Requests that met the dead worker fail; those after are answered.
    answered = 0
    for _ in range(20):
        with (
            suppress(httpx.TransportError),
            httpx.Client(base_url=str(served.client.base_url), timeout=300) as other,
        ):
            found = other.post("/models/darcy/predict", json=ASKED).json()["outputs"]
            assert found == truth
            answered += 1
    assert answered >= 18
    served.client.close()
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(timeout=60) == 0
    until(lambda: is_gone(served.process.pid))
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_killed_at_once_it_leaves_no_process(
    start: Start, until: Callable[..., None], is_gone: Callable[[int], bool]
) -> None:
    served = start("--workers", "2")
    served.client.post("/models/plasticity/solve", json=LONG)
    served.client.close()
    served.process.kill()
    served.process.wait()  # until then the dead process counts as one of its group
    until(lambda: is_gone(served.process.pid))


@pytest.mark.full
def test_restarted_under_load_it_loses_no_answer_that_it_began(
    start: Start, until: Callable[..., None]
) -> None:
    served = start()
    truth = served.client.post("/models/darcy/predict", json=ASKED).json()["outputs"]
    stopped, answers, refused = threading.Event(), [], []

    def ask() -> None:
        with httpx.Client(base_url=str(served.client.base_url), timeout=300) as client:
            while not stopped.is_set():
                try:
                    reply = client.post("/models/darcy/predict", json=ASKED)
                except httpx.TransportError:
                    refused.append(True)
                    return
                if reply.status_code == 200:
                    answers.append(reply.json()["outputs"])
                else:
                    assert reply.status_code == 503
                    assert reply.headers["retry-after"]

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for thread in asking:
        thread.start()
    until(lambda: len(answers) > 20)
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(timeout=60) == 0
    stopped.set()
    for thread in asking:
        thread.join()
    for answer in answers:  # batched as it happened
        assert answer["pressure"] == pytest.approx(truth["pressure"], rel=1e-6, abs=1e-6)
    again = start("--port", str(served.port))
    assert again.client.post("/models/darcy/predict", json=ASKED).json()["outputs"] == truth


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--host", "0.0.0.0"), "expected 127.0.0.1 without a token"),
        (("--queue", "0"), "--queue: expected more than 0"),
        (("nowhere",), "expected the folder of a run"),
    ],
)
def test_what_cannot_be_served_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    runs: Mapping[str, Path],
    options: tuple[str, ...],
    words: str,
) -> None:
    from funcattn import cli

    monkeypatch.delenv("FUNCATTN_TOKEN", raising=False)
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["funcattn", "serve", str(runs["darcy"]), *options])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    assert words in " ".join(capsys.readouterr().err.split())
