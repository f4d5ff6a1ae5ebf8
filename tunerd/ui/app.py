"""The application: which page is where, in bounded time and memory, read-only.

Queries run in threads, a few at a time; a page that was just made is given again. Pages ask the
store and digests kept in memory, so that none reads a long history. What takes longer, because a
model has to be asked, is made aside (:mod:`tunerd.ui.answers`) and fetched when it is there.
"""

import csv
import io
import json
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from hmac import compare_digest
from typing import Any
from urllib.parse import parse_qsl

import anyio
import msgspec
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.errors import CorruptDataError, StoreUnavailableError, TunerdError, UnknownStudyError
from tunerd.queries.digest import StudyDigest, StudyDigests
from tunerd.queries.forecasts import study_forecast
from tunerd.queries.job_views import (
    ClusterLedger,
    LedgerRow,
    LedgerWindow,
    cluster_ledger,
    job_detail,
    job_list,
    jobs_at,
    ledger_window,
)
from tunerd.queries.metric_samples import MetricSamples
from tunerd.queries.orders import InvalidOrderError, order_arguments
from tunerd.queries.views import (
    SORTS,
    context_detail,
    context_list,
    study_detail,
    study_list,
)
from tunerd.report.model import ReportObjective, ReportPoint, StudyReport
from tunerd.store import Store
from tunerd.ui.answers import AsideAnswer, AsideAnswers, BusyError
from tunerd.ui.openapi import openapi
from tunerd.ui.render import asset, context_url, render, study_url
from tunerd.ui.server import EVENTS, WRONG_TOKEN_S

__all__ = ["Pages"]

log = logging.getLogger(__name__)

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # without any, forms would not say where they come from
}
LOCAL = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
AT_ONCE = 2
"""Queries that run at the same time: ingest wants the interpreter too."""
LONGEST_S = 8.0
"""A query that takes longer is not waited for."""
KEPT, KEPT_S = 64, 2.0
"""Pages that are given again, and for how long at most while nothing changes."""
NEWS_S = 1.0
"""How often news is announced at most. All who look fetch their pages anew at the same time then,
and each page is made once."""
MOST_STREAMS = 32
STREAM_S = 50.0
LOOK_S = 0.2
HEARTBEAT_S = 10.0
MOST_A_PAGE = 200
DAYS = (7, 30, 90, 365)
MOST_FORM = 16 * 1024
MOST_NAME, MOST_WHY = 100, 1_000
RECENT = 12
POINTS = 400
FILTERS = {"user": "username", "status": "status", "job": "job_id"}

Made = Callable[[Request], "Answer"]


class Answer:
    """What goes out."""

    __slots__ = ("body", "headers", "kind", "status")

    def __init__(
        self, body: bytes, kind: str = "text/html; charset=utf-8", status: int = 200, **more: str
    ) -> None:
        self.body, self.kind, self.status = body, kind, status
        self.headers = {name.replace("_", "-"): value for name, value in more.items()}


class Pages:
    """The pages of one store. ``close`` ends what runs for them.

    Args:
        store: read only.
        metrics: what the daemon measures; nothing without one.
        problems: what keeps the daemon from being ready; None where none runs here.
        arguments: with which tunerd's own commands find the same store.
        hosts: names under which it may be asked; None for any.
        token: with which people may act; None for nobody.
    """

    def __init__(
        self,
        store: Store,
        *,
        metrics: Callable[[], MetricSamples] = MetricSamples,
        problems: Callable[[], Sequence[str]] | None = None,
        arguments: Sequence[str] = (),
        hosts: frozenset[str] | None = None,
        token: str | None = None,
    ) -> None:
        self.store = store
        self.digests = StudyDigests(store, metrics)
        self.aside = AsideAnswers(arguments)
        self._problems = problems
        self._hosts = hosts
        self._token = token
        self._kept: OrderedDict[Any, tuple[int, float, Answer]] = OrderedDict()
        self._announced = (0, -NEWS_S)
        self._streams = 0
        self._limiter: anyio.CapacityLimiter | None = None
        self._studies: dict[str, tuple[int, Study]] = {}
        study = "/studies/{study}"
        pages: dict[str, Made] = {
            "/": self._home,
            "/ledger": self._cluster_ledger,
            "/ledger.csv": self._cluster_ledger_csv,
            study: self._study,
            f"{study}/contexts": self._contexts,
            f"{study}/contexts/{{context:path}}": self._context,
            f"{study}/jobs": self._jobs,
            f"{study}/jobs/{{sequence}}": self._job,
            f"{study}/ledger": self._ledger,
            f"{study}/ledger.csv": self._ledger_csv,
            f"{study}/try": self._try,
            f"{study}/importance": self._importance,
            f"{study}/forecast": self._forecast,
            f"{study}/report": self._report,
            f"{study}/recommendations/{{recommendation}}": self._explanation,
        }
        routes = [Route(path, partial(self._page, made, False)) for path, made in pages.items()]
        routes += [
            Route(f"/api/v1{'/studies' if path == '/' else path}", partial(self._page, made, True))
            for path, made in pages.items()
            if not path.endswith((".csv", "/report"))
        ]
        routes += [
            Route("/api/v1/openapi.json", _schema),
            Route("/static/{name}", _static),
            Route(EVENTS, self._events),
            Route("/studies", _to_home),
        ]
        if token is not None:
            routes.append(Route(f"{study}/commands", self._act, methods=["POST"]))
        self._app = Starlette(routes=routes, exception_handlers={HTTPException: self._refused})
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """As ASGI has it."""
        await self._app(scope, receive, send)

    def close(self) -> None:
        """End what runs."""
        self.aside.close()
        self.digests.close()

    # -- answering --------------------------------------------------------------------------

    async def _page(self, made: Made, as_json: bool, request: Request) -> Response:
        self._check_host(request)
        request.state.json = as_json
        version = self._version()
        scope = request.scope
        _check_text(scope["path"], *request.query_params.values())
        url = (scope["raw_path"], scope["query_string"], request.headers.get("x-fragment"))
        kept = self._kept.get(url)
        if kept and kept[0] == version and time.monotonic() - kept[1] < KEPT_S:
            return _response(kept[2])
        answer = await self._made(made, request)
        if answer.status == 200:
            self._kept[url] = (version, time.monotonic(), answer)
            self._kept.move_to_end(url)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return _response(answer)

    def _version(self) -> int:
        """The version that was announced last. Pages are at least as new."""
        version, since = self._announced
        if (new := self.digests.version) != version and time.monotonic() - since >= NEWS_S:
            self._announced = (new, time.monotonic())
        return self._announced[0]

    async def _made(self, made: Made, request: Request) -> Answer:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(AT_ONCE)
        try:
            with anyio.fail_after(LONGEST_S):
                return await to_thread.run_sync(
                    made, request, abandon_on_cancel=True, limiter=self._limiter
                )
        except TimeoutError:
            problem = f"This took longer than {LONGEST_S:g} s. Ask for less, or later."
            return self._wrong(request, 503, "Too slow", problem)
        except UnknownStudyError as error:
            return self._wrong(request, 404, "No such study", str(error))
        except BusyError:
            if request.headers.get("x-fragment"):  # which asks again by itself
                return self._html("waiting.html.j2", request, 202, what="Much is being asked.")
            return self._wrong(request, 503, "Busy", "Much is being asked. Try again in a moment.")
        except (StoreUnavailableError, CorruptDataError) as error:
            return self._wrong(request, 503, "The store does not answer", str(error))
        except InvalidOrderError as error:
            return self._wrong(request, 400, "Nothing was done", str(error))
        except TunerdError as error:
            return self._wrong(request, 409, "Not now", str(error))
        except _AbsentError as error:
            return self._wrong(request, 404, "Not there", str(error))
        except _MistakeError as error:
            return self._wrong(request, 400, "That is not a question", str(error))

    def _wrong(self, request: Request, status: int, title: str, problem: str) -> Answer:
        if request.state.json:
            body = json.dumps({"problem": problem}).encode()
            return Answer(body, "application/json", status)
        return self._html("error.html.j2", request, status, title=title, problem=problem)

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        request.state.json = request.url.path.startswith("/api/")
        sentences = {404: "There is no such page.", 405: "Only GET and HEAD: nothing changes here."}
        problem = sentences.get(error.status_code, error.detail)
        answer = self._wrong(request, error.status_code, error.detail, problem)
        answer.headers |= dict(error.headers or {})
        return _response(answer)

    def _check_host(self, request: Request) -> None:
        """A page of somebody else's whose name was made to lead here must not read this one."""
        if self._hosts is None:
            return
        host = request.headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in self._hosts:
            raise HTTPException(421, f"This is not {name or 'a name'} that it may be asked under.")

    def _html(self, template: str, request: Request, status: int = 200, /, **values: Any) -> Answer:
        problems = None if self._problems is None else list(self._problems())
        url = request.url
        api = "/api/v1" + ("/studies" if url.path == "/" else url.path)
        body = render(
            template,
            path=url.path,
            api=f"{api}?{url.query}" if url.query else api,
            problems=problems,
            fragment=request.headers.get("x-fragment") == "1",
            acts=self._token is not None,
            **values,
        )
        return Answer(body, status=status)

    def _view(self, request: Request, template: str, view: Any, **values: Any) -> Answer:
        if request.state.json:
            return Answer(_encode(view), "application/json")
        return self._html(template, request, view=view, **values)

    def _parsed(self, name: str) -> Study:
        row = self.store.study(name)
        if row is None:
            raise self.store.unknown_study(name)
        known = self._studies.get(name)
        if known is None or known[0] != row.generation:
            generation = self.store.generation(name)
            assert generation is not None
            known = self._studies[name] = (row.generation, parse_study(generation.text, name))
        return known[1]

    def _digest(self, request: Request) -> StudyDigest | None:
        return self.digests.of(request.path_params["study"])

    def _reading(self, request: Request) -> Answer:
        """A study's jobs are still being read: look again in a moment."""
        if request.state.json:
            return Answer(b'{"state": "running"}', "application/json", 202, Retry_After="1")
        return self._html("waiting.html.j2", request, 202, what="Jobs are being read.")

    # -- pages ------------------------------------------------------------------------------

    def _home(self, request: Request) -> Answer:
        digests = self.digests.all()
        total = len(self.store.studies())
        view = study_list(digests, self.digests.unreadable(), total, _now())
        return self._view(request, "studies.html.j2", view)

    def _study(self, request: Request) -> Answer:
        digest = self._digest(request)
        if digest is None:
            return self._reading(request)
        view = study_detail(self.store, digest, _now())
        if request.state.json:
            return Answer(_encode(view), "application/json")
        contexts = context_list(digest, search="", sort="-last", page=1, limit=RECENT)
        jobs = job_list(self.store, digest.study, before=None, limit=RECENT, equal={})
        return self._view(
            request,
            "study.html.j2",
            view,
            contexts=contexts,
            jobs=jobs,
            points=_points(digest),
            given=self._given(request, digest.name),
            objective=ReportObjective(**view.objective),  # type: ignore[arg-type]
        )

    def _contexts(self, request: Request) -> Answer:
        asked = request.query_params
        search, sort = asked.get("search", ""), asked.get("sort", "-last")
        if sort.removeprefix("-") not in SORTS:
            known = ", ".join(SORTS)
            raise _MistakeError(f"sort: should be one of {known}, or -NAME for the reverse")
        page = _number(asked, "page", 1, 1, 10**6)
        limit = _number(asked, "limit", 50, 1, MOST_A_PAGE)
        digest = self._digest(request)
        if digest is None:
            return self._reading(request)
        view = context_list(digest, search=search, sort=sort, page=page, limit=limit)
        return self._view(request, "contexts.html.j2", view, search=search, sort=sort)

    def _context(self, request: Request) -> Answer:
        study = self._parsed(request.path_params["study"])
        rest = request.path_params["context"]
        key = study.name if rest == "-" else f"{study.name}|{rest}"
        view = context_detail(self.store, study, key)
        if view is None:
            raise _AbsentError(f"{study.name} has no context {rest}.")
        if request.state.json:
            return Answer(_encode(view), "application/json")
        latest = sorted({s for row in view.configs for s in row.sequences}, reverse=True)[:40]
        jobs = jobs_at(self.store, study, latest)
        given = self._given(request, study.name)
        return self._view(request, "context.html.j2", view, jobs=jobs, given=given)

    def _jobs(self, request: Request) -> Answer:
        study = self._parsed(request.path_params["study"])
        asked = request.query_params
        equal = {column: asked[name] for name, column in FILTERS.items() if asked.get(name)}
        before = _number(asked, "before", 0, 0, 2**62) or None
        limit = _number(asked, "limit", 50, 1, MOST_A_PAGE)
        view = job_list(self.store, study, before=before, limit=limit, equal=equal)
        filters = {name: asked.get(name, "") for name in FILTERS}
        return self._view(
            request, "jobs.html.j2", view, filters=filters, before=before, objective=study.objective
        )

    def _job(self, request: Request) -> Answer:
        study = self._parsed(request.path_params["study"])
        sequence = request.path_params["sequence"]
        known = sequence.isascii() and sequence.isdecimal() and len(sequence) < 19
        view = job_detail(self.store, study, int(sequence)) if known else None
        if view is None:
            raise _AbsentError(f"{study.name} has no job number {sequence}.")
        return self._view(request, "job.html.j2", view)

    def _forecast(self, request: Request) -> Answer:
        study = self._parsed(request.path_params["study"])
        return self._view(
            request, "forecast.html.j2", study_forecast(self.store, study.name, _now())
        )

    def _ledger(self, request: Request) -> Answer:
        view = self._window(request)
        return (
            self._reading(request)
            if view is None
            else self._view(request, "ledger.html.j2", view, days=DAYS)
        )

    def _window(self, request: Request) -> LedgerWindow | None:
        days = _number(request.query_params, "days", 7, 1, 3650)
        digest = self._digest(request)
        return None if digest is None else ledger_window(digest, days, _now())

    def _ledger_csv(self, request: Request) -> Answer:
        view = self._window(request)
        if view is None:
            return self._reading(request)
        name = f"{view.study}-ledger-{view.days}d.csv"
        return _csv(name, {"context": view.contexts, "user": view.users})

    def _cluster_ledger(self, request: Request) -> Answer:
        return self._view(request, "cluster_ledger.html.j2", self._cluster(request), days=DAYS)

    def _cluster_ledger_csv(self, request: Request) -> Answer:
        view = self._cluster(request)
        name = f"ledger-{view.days}d.csv"
        return _csv(name, {"study": view.studies, "user": view.users})

    def _cluster(self, request: Request) -> ClusterLedger:
        days = _number(request.query_params, "days", 7, 1, 3650)
        return cluster_ledger(self.digests.all(), len(self.store.studies()), days, _now())

    # -- what a model is asked for ----------------------------------------------------------

    def _importance(self, request: Request) -> Answer:
        study = self._parsed(request.path_params["study"])
        return self._told(request, "importance.html.j2", study, "explain", "--", study.name)

    def _explanation(self, request: Request) -> Answer:
        study = self._parsed(request.path_params["study"])
        wanted = request.path_params["recommendation"]
        command = ("explain", f"--recommendation={wanted}", "--", study.name)
        return self._told(request, "explanation.html.j2", study, *command)

    def _report(self, request: Request) -> Answer:
        study = self._parsed(request.path_params["study"])
        days = _number(request.query_params, "days", 30, 1, 3650)
        answer = self.aside.ask("report", f"--days={days}", "--", study.name)
        if answer is None:
            return self._html("waiting.html.j2", request, 202, what="The report is being made.")
        if answer.problem:
            title, problem = "No report", answer.problem
            return self._html("error.html.j2", request, 409, title=title, problem=problem)
        from tunerd.report.page import page

        body = page(msgspec.convert(answer.value, StudyReport)).encode(errors="replace")
        # It is a page of its own that may be saved: its style stands in it, and nothing else may.
        policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        return Answer(body, Content_Security_Policy=policy)

    def _try(self, request: Request) -> Answer:
        study = self._parsed(request.path_params["study"])
        asked = request.query_params
        given = {feature.name: asked.get(feature.name, "") for feature in study.context}
        answer: AsideAnswer | None = AsideAnswer()
        whole = bool(given) and all(value.strip() for value in given.values())
        if whole:
            texts = [f"--context={name}={value.strip()}" for name, value in given.items()]
            answer = self.aside.ask("recommend", "--here", *texts, "--", study.name)
            if answer is None and request.state.json:
                return Answer(b'{"state": "running"}', "application/json", 202, Retry_After="1")
        elif request.state.json:
            missing = ", ".join(name for name, value in given.items() if not value.strip())
            raise _MistakeError(f"name a value of every context feature; missing: {missing}")
        if request.state.json:
            return _told_json(answer)
        return self._html(
            "try.html.j2",
            request,
            study=study,
            given=given,
            asked=whole,
            running=answer is None,
            answer=answer,
            choices=self._choices(study),
        )

    def _choices(self, study: Study) -> dict[str, list[str]]:
        """Values of context features that jobs had, for who types one."""
        digest = self.digests.of(study.name, wait_s=0.0)
        known: dict[str, set[str]] = {feature.name: set() for feature in study.context}
        for line in list(digest.contexts.values())[:5_000] if digest else ():
            for name, value in line.context.items():
                if name in known and value is not None and len(known[name]) < 100:
                    known[name].add(str(value))
        return {name: sorted(values) for name, values in known.items()}

    def _told(self, request: Request, template: str, study: Study, *command: str) -> Answer:
        answer = self.aside.ask(*command)
        if request.state.json:
            if answer is None:
                return Answer(b'{"state": "running"}', "application/json", 202, Retry_After="1")
            return _told_json(answer)
        if answer is None:
            return self._html("waiting.html.j2", request, 202, what="The model is being asked.")
        if answer.problem:
            # As part of another page it is no error: a study without a model is an ordinary one.
            status = 200 if request.headers.get("x-fragment") else 409
            title = "Nothing to say yet"
            return self._html("error.html.j2", request, status, title=title, problem=answer.problem)
        return self._html(template, request, view=answer.value, study=study)

    # -- acting -----------------------------------------------------------------------------

    async def _act(self, request: Request) -> Response:
        """Give a command. The token is typed into every form: no browser sends it by itself, so
        that no other site's page can give one."""
        self._check_host(request)
        request.state.json = False
        if not _same_origin(request):
            return _response(self._wrong(request, 403, "Not from here", "Use this page's form."))
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_FORM:
                raise HTTPException(413, "That is too much for a form.")
        try:
            form = dict(parse_qsl(body.decode(), max_num_fields=20))
        except ValueError:
            raise HTTPException(400, "That is no form.") from None
        _check_text(*form.values())
        token = form.get("token", "").encode(errors="replace")
        if not compare_digest(token, (self._token or "").encode()):
            log.warning("a command over HTTP had the wrong token")
            await anyio.sleep(WRONG_TOKEN_S)
            problem = "That is not the token. Nothing was done."
            return _response(self._wrong(request, 403, "Not allowed", problem))
        made = await self._made(partial(self._give, form), request)
        return _response(made)

    def _give(self, form: Mapping[str, str], request: Request) -> Answer:
        study = self._parsed(request.path_params["study"])
        who, why = form.get("who", "").strip(), form.get("why", "").strip()
        if not who or not why:
            raise _MistakeError("say who you are, and why")
        command, key = form.get("command", ""), form.get("context_key") or None
        arguments = order_arguments(self.store, study, command, key, form.get("set", "").split())
        with self.store.transaction() as tx:
            number = tx.add_command(
                study.name,
                command,
                arguments,
                who=f"{who[:MOST_NAME]} (page)",
                why=why[:MOST_WHY],
                now=_now(),
            )
        log.info("command %d of %s over HTTP: %s", number, study.name, command)
        self._kept.clear()
        back = study_url(study.name) if key is None else context_url(study.name, key)
        return Answer(b"", status=303, Location=f"{back}?given={number}")

    def _given(self, request: Request, study: str) -> Any:
        """The command that was just given."""
        number = _number(request.query_params, "given", 0, 0, 2**62)
        command = self.store.command(number) if number else None
        return command if command is not None and command.study == study else None

    # -- live -------------------------------------------------------------------------------

    async def _events(self, request: Request) -> Response:
        self._check_host(request)
        if self._streams >= MOST_STREAMS:
            return Response("Too many listen already.\n", 503, headers={"Retry-After": "10"})
        headers = {"Cache-Control": "no-store", **SECURITY}
        return StreamingResponse(self._news(), media_type="text/event-stream", headers=headers)

    async def _news(self) -> AsyncIterator[bytes]:
        """The version of what is known, whenever it is another."""
        self._streams += 1
        try:
            began = sent = time.monotonic()
            version = self._version()
            yield f"retry: 1000\ndata: {version}\n\n".encode()
            while time.monotonic() - began < STREAM_S:
                await anyio.sleep(LOOK_S)
                self.digests.wanted()
                if (new := self._version()) != version:
                    version, sent = new, time.monotonic()
                    yield f"data: {version}\n\n".encode()
                elif time.monotonic() - sent > HEARTBEAT_S:
                    sent = time.monotonic()
                    yield b": still here\n\n"
        finally:
            self._streams -= 1


class _AbsentError(Exception):
    """What is asked for is not there."""


class _MistakeError(Exception):
    """What is asked makes no sense."""


def _check_text(*texts: str) -> None:
    """No database keeps a NUL character, and no command takes one: nothing can be called so."""
    if any("\0" in text for text in texts):
        raise HTTPException(400, "Nothing has a NUL character in its name.")


def _same_origin(request: Request) -> bool:
    """Whether a form is this page's own, as the browser says."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin", "")
    host = request.headers.get("host", "")
    return site == "same-origin" and origin in (f"http://{host}", f"https://{host}")


def _response(answer: Answer) -> Response:
    headers = {"Cache-Control": "no-store", **SECURITY, **answer.headers}
    headers["Content-Type"] = answer.kind
    return Response(answer.body, answer.status, headers=headers)


def _told_json(answer: AsideAnswer | None) -> Answer:
    assert answer is not None
    if answer.problem:
        return Answer(json.dumps({"problem": answer.problem}).encode(), "application/json", 409)
    return Answer(_encode(answer.value), "application/json")


def _encode(view: Any) -> bytes:
    return msgspec.json.encode(view, enc_hook=str)


def _number(asked: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = asked.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20) or not low <= int(text) <= high:
        raise _MistakeError(f"{name}: should be a whole number from {low} to {high:,}")
    return int(text)


def _csv(name: str, parts: Mapping[str, Sequence[LedgerRow]]) -> Answer:
    """Rows of a ledger by what they are sums of."""
    out = io.StringIO()
    table = csv.writer(out)
    head = ["by", "name", "jobs", "followed", "changed", "ignored", "unasked", "gpu_hours"]
    table.writerow([*head, "gpu_hours_saved", "gpu_hours_spent_on_trying", "net_gpu_hours"])
    for kind, rows in parts.items():
        for row in rows:
            account = row.account
            counts = [account["following"].get(name, 0) for name in head[3:7]]
            hours = [account["gpu_hours"], account["gpu_hours_saved"]]
            hours += [account["gpu_hours_spent_on_trying"], row.net_gpu_hours]
            line = [kind, _cell(row.name), account["jobs"], *counts]
            table.writerow([*line, *(f"{amount:.3f}" for amount in hours)])
    return Answer(
        out.getvalue().encode(errors="replace"),
        "text/csv; charset=utf-8",
        Content_Disposition=f'attachment; filename="{name}"',
    )


def _cell(text: str) -> str:
    """A spreadsheet takes a text that begins like a formula for one."""
    return f"'{text}" if text[:1] in "=+-@\t\r" else text


def _points(digest: StudyDigest) -> list[ReportPoint]:
    study = digest.study
    points: list[ReportPoint] = []
    for record in list(digest.points)[-POINTS:]:
        outcome = record.outcome
        if outcome.score is None or outcome.predicted is None:
            continue
        held = (
            outcome.low is not None
            and outcome.high is not None
            and outcome.low <= outcome.score <= outcome.high
        )
        points.append(
            ReportPoint(
                predicted=study.metric_value(outcome.predicted),
                actual=study.metric_value(outcome.score),
                held=held,
            )
        )
    return points


async def _static(request: Request) -> Response:
    try:
        content, kind = asset(request.path_params["name"])
    except KeyError:
        raise HTTPException(404) from None
    headers = {"Cache-Control": "public, max-age=31536000, immutable", **SECURITY}
    return Response(content, headers={**headers, "Content-Type": kind})


async def _schema(_: Request) -> Response:
    return Response(json.dumps(openapi()).encode(), media_type="application/json", headers=SECURITY)


async def _to_home(_: Request) -> Response:
    return RedirectResponse("/", 308)


def _now() -> datetime:
    return datetime.now(UTC)
