"""An application in this process, asked without a network."""

from __future__ import annotations

import asyncio
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx


class Client:
    """Requests to an application, one after another."""

    def __init__(self, application: Any, base_url: str = "http://localhost") -> None:
        self.application, self.base_url = application, base_url

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Ask, and wait for the answer."""

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.application, raise_app_exceptions=True)
            async with httpx.AsyncClient(transport=transport, base_url=self.base_url) as client:
                return await client.request(method, path, **options)

        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nobody reads the warnings of a server
            return run(ask())

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Ask by GET."""
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        """Ask by POST."""
        return self.request("POST", path, **options)


def run(coroutine: Any) -> Any:
    """What a coroutine returns; in a thread of its own, as the tests of pages leave an event loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def client_of(application: Any, **options: Any) -> Client:
    """A client of an application."""
    return Client(application, **options)
