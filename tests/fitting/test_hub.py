"""Surrogates to the Hub and back, by a server that stands in for it."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import funcattn
from funcattn.errors import FuncattnError
from funcattn.fitting.hub import HubError

hub = pytest.importorskip("huggingface_hub")
SHA = "0" * 40
SMALL: dict[str, Any] = {"width": 8, "layers": 1, "heads": 2, "bases": 4}


class StandIn(BaseHTTPRequestHandler):
    """As much of the Hub as uploading and downloading a folder needs."""

    files: dict[str, bytes]
    asked: list[str]

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""

    def answer(self, document: object, code: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(self.path)
        if self.path == "/api/repos/create":
            self.answer({"url": f"http://{self.headers['Host']}/user/plates", "id": "user/plates"})
        elif "/preupload/" in self.path:
            named = [each["path"] for each in json.loads(body)["files"]]
            modes = [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in named]
            self.answer({"files": modes})
        elif "/commit/" in self.path:
            for line in body.splitlines():
                each = json.loads(line)
                if each["key"] == "file":
                    content = base64.b64decode(each["value"]["content"])
                    self.files[each["value"]["path"]] = content
            url = f"http://{self.headers['Host']}/user/plates/commit/{SHA}"
            self.answer({"commitUrl": url, "commitOid": SHA})
        else:
            self.answer({})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.asked.append(self.path)
        path = self.path.partition("?")[0]
        if re.fullmatch(r"/api/models/user/plates(/revision/\w+)?", path):
            named = [{"rfilename": name, "size": len(b)} for name, b in self.files.items()]
            self.answer({"id": "user/plates", "sha": SHA, "siblings": named})
        elif (found := re.fullmatch(rf"/api/models/user/plates/tree/{SHA}.*", path)) is not None:
            self.answer(
                [
                    {
                        "type": "file",
                        "path": name,
                        "size": len(b),
                        "oid": hashlib.sha1(b).hexdigest(),
                    }
                    for name, b in self.files.items()
                ]
            )
        elif (found := re.fullmatch(rf"/user/plates/resolve/{SHA}/(.+)", path)) is not None:
            content = self.files[found.group(1)]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", SHA)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)
        else:
            self.answer({"error": "Repository not found"}, 404)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[StandIn]]:
    """The server, which the library takes for the Hub, with an empty cache."""
    kind = type("Handler", (StandIn,), {"files": {}, "asked": []})
    running = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{running.server_port}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "nobody's")
    yield kind
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture(scope="module")
def surrogate() -> funcattn.Surrogate:
    sources = np.random.default_rng(0).normal(size=(20, 6, 6))
    return funcattn.Surrogate(epochs=2, network=SMALL).fit(
        {"source": sources}, {"field": 2 * sources}
    )


@pytest.fixture
def pushed(server: type[StandIn], surrogate: funcattn.Surrogate) -> type[StandIn]:
    assert surrogate.push_to_hub("user/plates", token="nobody's").endswith(SHA)
    return server


def test_what_was_pushed_predicts_the_same(
    pushed: type[StandIn], surrogate: funcattn.Surrogate
) -> None:
    given = {"source": np.random.default_rng(1).normal(size=(2, 6, 6)) / 3}
    again = funcattn.load("hf://user/plates")
    np.testing.assert_array_equal(again.predict(given)["field"], surrogate.predict(given)["field"])
    assert "/api/repos/create" in pushed.asked


def test_the_card_says_what_the_record_says(
    pushed: type[StandIn], surrogate: funcattn.Surrogate
) -> None:
    card = pushed.files["README.md"].decode()
    assert card.startswith("---\nlibrary_name: funcattn\n")
    assert 'funcattn.load("hf://user/plates")' in card
    assert f"| this surrogate | {surrogate.run.record['test']['error']:.2%} |" in card
    for name, each in surrogate.comparison.items():
        assert f"| {name} | {each['error']:.2%} |" in card
    assert surrogate.run.record["commit"] in card
    assert "**source**" in card
    assert "**field**" in card


def test_only_files_of_a_run_are_fetched(pushed: type[StandIn]) -> None:
    pushed.files |= {"model.pkl": b"bad", "checkpoints/best-0/run.py": b"bad", "a/b.json": b"{}"}
    funcattn.load("hf://user/plates")
    fetched = [path for path in pushed.asked if "/resolve/" in path]
    assert fetched
    assert all(path.endswith((".json", ".jsonl", ".npy", ".safetensors")) for path in fetched)
    assert not any("a/b" in path for path in fetched)


def test_a_changed_file_is_refused(pushed: type[StandIn]) -> None:
    name = next(name for name in pushed.files if name.endswith("model.safetensors"))
    content = bytearray(pushed.files[name])
    content[-1] ^= 1
    pushed.files[name] = bytes(content)
    with pytest.raises(FuncattnError, match=r"checksum|damaged|differ"):
        funcattn.load("hf://user/plates").predict({"source": np.zeros((1, 6, 6))})


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        ("hf://plates", ValueError, "expected hf://user/name"),
        ("hf://user/../../x", ValueError, "expected hf://user/name"),
        ("hf://user/missing", HubError, "expected a run on the Hub"),
    ],
)
def test_a_bad_address_is_told(
    server: type[StandIn], address: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        funcattn.load(address)
    assert not any("resolve" in path for path in server.asked)


def test_a_repository_that_is_no_run_is_told(server: type[StandIn]) -> None:
    server.files["weights.json"] = b"{}"
    with pytest.raises(HubError, match=r"settings\.json"):
        funcattn.load("hf://user/plates")


def test_a_name_without_user_is_told(surrogate: funcattn.Surrogate) -> None:
    with pytest.raises(ValueError, match="expected 'user/name'"):
        surrogate.push_to_hub("plates")
