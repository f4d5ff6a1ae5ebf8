"""Stores that are built once per run and copied in each worker, and pages over each."""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.once import OncePerRun
from tests.servers import wait_until
from tests.ui.world import World, build_hostile, build_world, file_of
from tunerd.ui.app import LOCAL, Pages
from tunerd.ui.server import HttpServer


@dataclass(frozen=True)
class Site:
    """Pages that answer."""

    url: str
    port: int

    def get(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers in lower case, body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, told, answer.read()
        finally:
            connection.close()

    def page(self, path: str) -> str:
        """A page, once it is there."""
        for _ in range(600):
            status, _, body = self.get(path)
            if status != 202:
                assert status == 200, path
                return body.decode()
            time.sleep(0.1)
        raise AssertionError(f"{path} never came")

    def json(self, path: str) -> Any:
        """An answer of the API, once it is there."""
        for _ in range(600):
            status, _, body = self.get(f"/api/v1{path}")
            if status != 202:
                assert status == 200, body
                return json.loads(body)
            time.sleep(0.1)
        raise AssertionError(f"{path} never came")


@contextmanager
def serving(world: World, token: str | None = None) -> Iterator[Site]:
    with world.opened() as store:
        arguments = [f"--settings={world.settings}"]
        pages = Pages(store, arguments=arguments, hosts=LOCAL, token=token)
        server = HttpServer("127.0.0.1", 0, pages=pages)
        try:
            site = Site(server.url, server.port)
            wait_until(lambda: not site.json("/studies")["being_read"], 60.0, "jobs are read")
            yield site
        finally:
            pages.close()
            server.close()


@pytest.fixture(scope="session")
def world(once_per_run: OncePerRun, tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(once_per_run("world", build_world))
    return made.copy(tmp_path_factory.mktemp("world") / "w")


@pytest.fixture(scope="session")
def hostile(once_per_run: OncePerRun, tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(once_per_run("hostile", build_hostile))
    return made.copy(tmp_path_factory.mktemp("hostile") / "w")


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> World:
    return file_of(tmp_path_factory.mktemp("empty") / "w")


@pytest.fixture(scope="session")
def site(world: World) -> Iterator[Site]:
    with serving(world) as site:
        yield site


@pytest.fixture(scope="session")
def hostile_site(hostile: World) -> Iterator[Site]:
    with serving(hostile) as site:
        yield site


@pytest.fixture(scope="session")
def empty_site(empty: World) -> Iterator[Site]:
    with serving(empty) as site:
        yield site


Serve = Callable[[World], Site]
