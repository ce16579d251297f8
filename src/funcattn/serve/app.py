"""The service: routes, and what becomes of errors. `funcattn.serve.service` has what they do."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from funcattn._version import __version__
from funcattn.errors import FuncattnError
from funcattn.pde.errors import NotConvergedError
from funcattn.serve.docs_page import docs_page
from funcattn.serve.gate import CrowdedError, Gate, SlowError, TooLargeError
from funcattn.serve.jobs import BusyError
from funcattn.serve.limits import Access, Limits
from funcattn.serve.model import ServedModel
from funcattn.serve.service import FILE_TYPES, Service

STATIC = Path(__file__).with_name("static")
_LOG = logging.getLogger("funcattn.serve")
_ERRORS: dict[int | str, dict[str, Any]] = {
    404: {"description": "There is no such model or job."},
    413: {"description": "The body, or the number of points, is beyond the limit."},
    422: {"description": "The request is not as described; `detail` says what was expected."},
    503: {"description": "Too many requests wait; Retry-After says when to ask again."},
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "object"}},
            **{kind: {"schema": {"type": "string", "format": "binary"}} for kind in FILE_TYPES},
        },
    }
}
_JSON_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


def create_app(
    models: Mapping[str, ServedModel],
    *,
    folder: Path,
    limits: Limits = Limits(),  # noqa: B008
    access: Access = Access(),  # noqa: B008
    threads: int = 1,
) -> FastAPI:
    """The service of some models; folder: of its jobs, which its workers share."""
    service = Service(models, limits, folder, threads)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:  # noqa: ARG001
        service.start()
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="funcattn",
        version=__version__,
        description="Predictions of trained networks, and the true answers of their solvers.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    _add_routes(app, service)
    _add_pages(app)
    _add_errors(app, service)
    app.add_middleware(
        Gate,
        access=access,
        ending=lambda: service.ending,
        count=service.metrics.count,
        begun=service.metrics.begun.track_inprogress,
    )
    return app


def _add_routes(app: FastAPI, service: Service) -> None:
    @app.get("/models", summary="All models")
    async def models() -> dict[str, Any]:
        return {"models": [model.summary() for model in service.models.values()]}

    @app.get("/models/{name}", summary="What a model takes and gives", responses=_ERRORS)
    async def description(name: str, arrays: str = "lists") -> Response:
        """Inputs, outputs, units, ranges seen in training, how inputs are drawn, a sample."""
        return await service.described(name, packed=arrays == "base64")

    @app.post("/models/{name}/random", responses=_ERRORS, openapi_extra=_JSON_BODY)
    async def random(name: str, request: Request, arrays: str = "lists") -> Response:
        """Parameters drawn from the law of the training set: {"seed": 1}."""
        return await service.random(name, request, packed=arrays == "base64")

    @app.post("/models/{name}/input", responses=_ERRORS, openapi_extra=_JSON_BODY)
    async def drawn(name: str, request: Request, arrays: str = "lists") -> Response:
        """The points and fields that parameters describe: {"parameters": {...}, "refine": 1}."""
        return await service.drawn(name, request, packed=arrays == "base64")

    @app.post("/models/{name}/predict", responses=_ERRORS, openapi_extra=_BODY)
    async def predict(name: str, request: Request, arrays: str = "lists") -> Response:
        """The fields: of {"parameters": {...}}, of {"positions": ..., "values": ...}, or of a file.

        A file (.npz, .h5, .vtu, by its Content-Type) is answered by a file of the same kind.
        """
        return await service.predicted(name, request, packed=arrays == "base64")

    @app.post("/models/{name}/inspect", responses=_ERRORS, openapi_extra=_JSON_BODY)
    async def inspected(name: str, request: Request, arrays: str = "lists") -> Response:
        """Basis functions and map of a layer: as predict, with {"layer": 0, "head": 0}."""
        return await service.inspected(name, request, packed=arrays == "base64")

    @app.post("/models/{name}/solve", status_code=202, responses=_ERRORS, openapi_extra=_JSON_BODY)
    async def solve(name: str, request: Request) -> Response:
        """Begin to solve for the true fields: {"parameters": {...}}; gives {"job": id}."""
        return await service.solve(name, request)

    @app.get("/jobs/{job}/events", responses={404: _ERRORS[404]})
    async def events(job: str, arrays: str = "lists") -> Response:
        """Server-sent events of a job: progress, then result or error."""
        service.check_job(job)
        return StreamingResponse(
            service.events(job, packed=arrays == "base64"), media_type="text/event-stream"
        )

    @app.delete("/jobs/{job}", status_code=204, responses={404: _ERRORS[404]})
    async def cancel(job: str) -> Response:
        """Cancel a job."""
        service.check_job(job)
        service.jobs.cancel(job)
        return Response(status_code=204)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether the service works."""
        return {"status": "ok", "version": __version__, "models": list(service.models)}

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counts and times, in the format of Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


def _add_pages(app: FastAPI) -> None:
    """The page and its files, which are listed once: nothing else is ever read."""
    files = {
        path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.is_file()
    }

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        if "index.html" not in files:
            return HTMLResponse(docs_page(app.openapi()))
        return FileResponse(files["index.html"])

    @app.get("/static/{path:path}", include_in_schema=False)
    async def static(path: str) -> Response:
        if path not in files:
            raise HTTPException(404, "there is no such file")
        return FileResponse(files[path])

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(docs_page(app.openapi()))


def _add_errors(app: FastAPI, service: Service) -> None:
    Handler = Callable[[Request, Exception], Awaitable[Response]]  # noqa: N806

    def says(status: int) -> Handler:
        async def answered(request: Request, error: Exception) -> Response:  # noqa: ARG001
            return JSONResponse({"detail": str(error)}, status)

        return answered

    async def later(request: Request, error: Exception) -> Response:  # noqa: ARG001
        retry = {"Retry-After": str(service.retry_after())}
        return JSONResponse({"detail": str(error)}, 503, retry)

    async def no_memory(request: Request, error: Exception) -> Response:  # noqa: ARG001
        detail = "points: expected a question that fits into memory, got a larger one"
        return JSONResponse({"detail": detail}, 413)

    async def unexpected(request: Request, error: Exception) -> Response:
        _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
        detail = "the service failed; what happened is in its log"
        return JSONResponse({"detail": detail}, 500)

    async def nobody(request: Request, error: Exception) -> Response:  # noqa: ARG001
        return Response(status_code=499)

    for kind in (ValueError, FuncattnError, NotConvergedError):
        app.add_exception_handler(kind, says(422))
    app.add_exception_handler(TooLargeError, says(413))
    app.add_exception_handler(SlowError, says(408))
    app.add_exception_handler(MemoryError, no_memory)
    app.add_exception_handler(ClientDisconnect, nobody)
    for crowded in (BusyError, CrowdedError):
        app.add_exception_handler(crowded, later)
    app.add_exception_handler(Exception, unexpected)
