"""Services on a port of the loopback interface, in the event loop that asks for them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ..checks.message_shapes import as_mapping
from .apis import Service

HOST = "127.0.0.1"


@asynccontextmanager
async def serving(*services: Service) -> AsyncGenerator[str]:
    """Serve while the context is open; yield the address, such as `http://127.0.0.1:40123`.

    Requests that are still unanswered when it closes are cancelled.
    """
    app = Starlette(routes=[Route(one.path, _endpoint(one), methods=["POST"]) for one in services])
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1)
    server = _Server(config)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.bind((HOST, 0))
        running = asyncio.create_task(server.serve([listening]))
        while not server.started:
            await asyncio.sleep(0)
            if running.done():
                await running
        try:
            yield f"http://{HOST}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running


class _Server(uvicorn.Server):
    """A server that leaves the signals to the program around it."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _endpoint(service: Service) -> Callable[[Request], Awaitable[JSONResponse]]:
    async def endpoint(request: Request) -> JSONResponse:
        try:
            body = as_mapping(json.loads(await request.body()))
        except ValueError:
            body = None
        if body is None:
            return JSONResponse({"error": {"message": "the body is not a JSON object"}}, 400)
        return JSONResponse(*await service.respond(dict(body), request.headers))

    return endpoint
