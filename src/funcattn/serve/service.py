"""What the service does with a request: read it, ask the network in its turn, answer."""

import asyncio
import json
import signal
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from funcattn.data.foreign import FileError
from funcattn.serve.batching import Answer, Batcher
from funcattn.serve.encoding import encoded, parse_body
from funcattn.serve.gate import Bodies, CrowdedError, SlowError
from funcattn.serve.geometry import of_drawing
from funcattn.serve.jobs import Event, Jobs
from funcattn.serve.limits import Limits
from funcattn.serve.metrics import Metrics
from funcattn.serve.model import Question, ServedModel, drawn

Found = TypeVar("Found")
VTU = "application/vnd.vtk"
FILE_TYPES = {
    "application/x-npz": ".npz",
    "application/x-hdf5": ".h5",
    VTU: ".vtu",
}
GRACE = 9.0
"""Seconds that running jobs get after SIGTERM; the server waits for ten."""
_PAUSE = 0.1


class Service:
    """Models, the thread that asks them, and the jobs of one worker."""

    def __init__(
        self, models: Mapping[str, ServedModel], limits: Limits, folder: Path, threads: int
    ) -> None:
        self.models, self.limits = dict(models), limits
        self.metrics = Metrics()
        self.jobs = Jobs(folder, most=limits.jobs, seconds=limits.solve_seconds)
        self._bodies = Bodies(limits.body, limits.seconds)
        self._threads = threads
        self._batcher: Batcher | None = None
        self._busy, self._recent = 0, 0.05
        self._ended_at: float | None = None

    # Beginning and end

    @property
    def ending(self) -> bool:
        """Whether the end has begun."""
        return self._ended_at is not None

    def start(self) -> None:
        """Begin to answer, and see signals before the server does."""
        self._batcher = Batcher(self._threads)
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)

            def end(number: int, frame: FrameType | None, before: Any = before) -> None:
                self._ended_at = self._ended_at or time.monotonic()
                if callable(before):
                    before(number, frame)

            signal.signal(number, end)

    def close(self) -> None:
        """End the jobs, and the thread after what it is doing."""
        self.jobs.close()
        if self._batcher is not None:
            self._batcher.close()

    # Replies

    async def described(self, name: str, *, packed: bool) -> Response:
        """All about a model."""
        model = self._model(name)
        found = await asyncio.to_thread(model.description)
        limits = {"points": self.limits.points, "body": self.limits.body}
        form, sample = found["editor"], found["sample"]
        if sample is not None and "parameter" in form:
            form = {**form, "default": sample["parameters"][form["parameter"]]}
        return _json({**found, "editor": form, "limits": limits}, packed)

    async def random(self, name: str, request: Request, *, packed: bool) -> Response:
        """Parameters drawn at random."""
        model, body = self._model(name), parse_body(await self._bodies.read(request) or b"{}")
        seed = body.get("seed")
        if seed is not None and (type(seed) is not int or not 0 <= seed < 2**63):
            raise ValueError(f"seed: expected a whole number from 0 on, got {str(seed)[:50]}")
        return _json({"parameters": await asyncio.to_thread(model.random, seed)}, packed)

    async def drawn(self, name: str, request: Request, *, packed: bool) -> Response:
        """The input that parameters describe."""
        model, body = self._model(name), await self._bodies.read(request)
        with self._admitted():
            drawing = await self._within(
                asyncio.to_thread(lambda: model.draw(parse_body(body), self.limits.points))
            )
            return _json(of_drawing(drawing), packed)

    async def predicted(self, name: str, request: Request, *, packed: bool) -> Response:
        """The fields, in the format of the request."""
        model = self._model(name)
        suffix = _file_type(request)
        body = await self._bodies.read(request)
        with self._admitted():
            if suffix is not None:
                return await self._by_file(model, request, body, suffix, packed=packed)
            question = await self._question(lambda: model.asked(parse_body(body)))
            if _accepts(request, VTU):
                if question.case is None:
                    raise ValueError(f"Accept: expected a run on own data for {VTU}, got {name}")
                with tempfile.TemporaryDirectory(prefix="funcattn-") as folder:
                    place = Path(folder, "answer.vtu")
                    return await self._as_file(request, model, question, place)
            answer = await self._answer(request, model, question)
            return await asyncio.to_thread(_reply, model, question, answer, packed)

    async def inspected(self, name: str, request: Request, *, packed: bool) -> Response:
        """What a layer does."""
        model, raw = self._model(name), await self._bodies.read(request)
        with self._admitted():
            body = await asyncio.to_thread(parse_body, raw)
            layer, head = (_whole(body, key) for key in ("layer", "head"))
            question = await self._question(lambda: model.asked(body))
            assert self._batcher is not None
            future = self._batcher.call(
                model, question, lambda: model.inspected(question, layer, head)
            )
            found = await self._in_time(request, asyncio.wrap_future(future))
            return await asyncio.to_thread(_json, found | question.geometry, packed)

    async def solve(self, name: str, request: Request) -> Response:
        """Begin a job, if its parameters are good."""
        model, raw = self._model(name), await self._bodies.read(request)
        editor = model.editor
        if editor is None or not editor.solver:
            raise ValueError(f"solve: expected a model with a solver of ours, got {name}")
        with self._admitted():
            body = await asyncio.to_thread(parse_body, raw)
            await self._within(asyncio.to_thread(model.draw, body, self.limits.points))
            parameters, refine = drawn(body)
            data = asdict(model.run.settings.data)
            job = await asyncio.to_thread(
                self.jobs.start, name, editor.task, data, parameters, refine
            )
        self.metrics.jobs.inc()
        return JSONResponse({"job": job}, 202)

    def check_job(self, job: str) -> None:
        """Refuse the name of a job that is not there."""
        if not self.jobs.known(job):
            raise HTTPException(404, "job: expected one of the last minutes, got another")

    async def events(self, job: str, *, packed: bool) -> AsyncIterator[str]:
        """The events of a job, as they happen."""
        start = 0
        while True:
            for event in self.jobs.events(job, start):
                start += 1
                if event.name == "result":
                    data = await asyncio.to_thread(self._result, job, event)
                    event = Event("result", encoded(data, packed=packed))
                yield f"event: {event.name}\ndata: {json.dumps(event.data)}\n\n"
                if event.last:
                    return
            if self._ended_at is not None and time.monotonic() - self._ended_at > GRACE:
                yield f"event: error\ndata: {json.dumps({'detail': 'the service is ending'})}\n\n"
                return
            await asyncio.sleep(_PAUSE)

    def _result(self, job: str, event: Event) -> dict[str, Any]:
        request = self.jobs.request(job)
        model = self.models[request["model"]]
        asked = {"parameters": request["parameters"], "refine": request["refine"]}
        return {
            "outputs": self.jobs.result(job, event.data["names"]),
            "seconds": event.data["seconds"],
            "warnings": [],
            **of_drawing(model.draw(asked, self.limits.points)),
        }

    def retry_after(self) -> int:
        """Seconds after which it is worth to ask again."""
        return min(max(1, round(self._busy * self._recent)), 60)

    # Parts

    def _model(self, name: str) -> ServedModel:
        if name not in self.models:
            raise HTTPException(
                404, f"model: expected one of {', '.join(self.models)}, got {name[:100]!r}"
            )
        return self.models[name]

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        """Work on one request more, if there is room."""
        if self._busy >= self.limits.queue:
            raise CrowdedError(f"{self._busy} requests are worked on: try again in a while")
        self._busy += 1
        self.metrics.questions.inc()
        try:
            yield
        finally:
            self._busy -= 1
            self.metrics.questions.dec()

    async def _question(self, read: Callable[[], Question]) -> Question:
        """A question, if it is not too large."""
        question = await self._within(asyncio.to_thread(read))
        points = question.batch.positions.shape[:2].numel()
        if points > self.limits.points:
            raise ValueError(f"positions: expected at most {self.limits.points}, got {points}")
        return question

    async def _answer(self, request: Request, model: ServedModel, question: Question) -> Answer:
        assert self._batcher is not None
        future = asyncio.wrap_future(self._batcher.ask(model, question))
        answer: Answer = await self._in_time(request, future)
        self._recent = 0.9 * self._recent + 0.1 * answer.seconds
        self.metrics.together.observe(answer.together)
        return answer

    async def _in_time(self, request: Request, future: "asyncio.Future[Any]") -> Any:
        """What comes of a future, unless the client hangs up or time runs out."""
        # After the body, nothing but the end of the connection is received.
        gone = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait(
                {future, gone}, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if future.done():
                return future.result()
            if gone.done():
                raise ClientDisconnect
            raise CrowdedError(f"there was no answer within {self.limits.seconds:g} s")
        except asyncio.CancelledError:
            if future.cancelled():
                raise CrowdedError("the service is ending") from None
            raise
        finally:
            gone.cancel()
            future.cancel()

    async def _within(self, work: Awaitable[Found]) -> Found:
        """What comes of some work, unless time runs out."""
        try:
            return await asyncio.wait_for(work, self.limits.seconds)
        except TimeoutError as error:
            raise SlowError(f"expected work for {self.limits.seconds:g} s, got more") from error

    async def _by_file(
        self, model: ServedModel, request: Request, body: bytes, suffix: str, *, packed: bool
    ) -> Response:
        """The answer to a file, as a file unless JSON is asked for."""
        settings = _settings(request, "set")
        defaults = _settings(request, "default")

        def read(path: Path) -> Question:
            path.write_bytes(body)
            with _without_place(path):
                return model.asked_by_file(path, settings, defaults)

        with tempfile.TemporaryDirectory(prefix="funcattn-") as folder:
            place = Path(folder, f"body{suffix}")
            question = await self._question(lambda: read(place))
            if _accepts(request, "application/json"):
                answer = await self._answer(request, model, question)
                return await asyncio.to_thread(_reply, model, question, answer, packed)
            mesh = suffix != ".vtu" and question.case is not None and _accepts(request, VTU)
            suffix = ".vtu" if mesh else suffix
            place = place.with_name(f"answer{suffix}")
            return await self._as_file(request, model, question, place)

    async def _as_file(
        self, request: Request, model: ServedModel, question: Question, place: Path
    ) -> Response:
        """The answer as a file of the kind of the place that it is written to."""
        answer = await self._answer(request, model, question)

        def write() -> bytes:
            with _without_place(place):
                model.write(place, question, answer.told)
            return place.read_bytes()

        content = await asyncio.to_thread(write)
        kind = next(kind for kind, ending in FILE_TYPES.items() if ending == place.suffix)
        warned = model.warned(answer.told, question.batch.grid)
        headers = {
            "X-Funcattn-Warnings": json.dumps([*warned, *question.warnings]),
            "X-Funcattn-Seconds": f"{answer.seconds:.6f}",
            "Content-Disposition": f'attachment; filename="{model.name}{place.suffix}"',
        }
        return Response(content, media_type=kind, headers=headers)


@contextmanager
def _without_place(path: Path) -> Iterator[None]:
    """What goes wrong with a file is about what was sent, not about where we put it."""
    try:
        yield
    except (FileError, ValueError) as error:
        raise ValueError(str(error).replace(str(path), "body")) from error


def _accepts(request: Request, kind: str) -> bool:
    """Whether a request asks for one kind of answer by name; most take what comes."""
    asked = request.headers.get("accept", "").split(",")
    return kind in [each.partition(";")[0].strip().lower() for each in asked]


def _reply(model: ServedModel, question: Question, answer: Answer, packed: bool) -> Response:
    told = answer.told
    found: dict[str, Any] = {
        "outputs": model.answer(question, told.fields),
        "warnings": [*model.warned(told, question.batch.grid), *question.warnings],
        "seconds": answer.seconds,
    }
    if told.lower is not None and told.upper is not None:
        found |= {
            "lower": model.answer(question, told.lower),
            "upper": model.answer(question, told.upper),
        }
    if told.scores is not None:
        worst = [score.worst for score in told.scores]
        found["unlike"] = worst[0] if question.single else worst
    return _json(found | question.geometry, packed)


def _json(found: Any, packed: bool) -> Response:
    return JSONResponse(encoded(found, packed=packed))


def _file_type(request: Request) -> str | None:
    """The ending of the kind of file that a request brings, None for JSON."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind == "application/json":
        return None
    if kind not in FILE_TYPES:
        raise ValueError(
            f"Content-Type: expected application/json, {', '.join(FILE_TYPES)}, got {kind[:100]!r}"
        )
    return FILE_TYPES[kind]


def _settings(request: Request, kind: str) -> dict[str, float]:
    """Numbers by name from words such as angle=3."""
    found = {}
    for word in request.query_params.getlist(kind):
        name, _, value = word.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise ValueError(f"{kind}: expected NAME=NUMBER, got {word[:100]!r}") from None
    return found


def _whole(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name, 0)
    if type(value) is not int:
        raise ValueError(f"{name}: expected a whole number, got {str(value)[:50]}")
    return value
