"""The pictures of docs/page.md: pages over a simulated cluster of two studies and five weeks.

Writes them into docs/images, small: few colours, and the top of a page only.
"""

import argparse
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.kit import counted
from benchmarks.learning import CONTEXTS
from tests.stages.fakes import Heard, Time
from tests.stages.tuning import Tuning
from tests.ui.world import World, file_of
from tunerd.core.observation import Observation, Scalar, Value
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.events import from_bytes
from tunerd.lab.simulation.shipped import shipped_study
from tunerd.lab.simulation.simulator import CostSimulator, job_rng, simulator_for
from tunerd.store import Store
from tunerd.ui.app import Pages
from tunerd.ui.render import context_url
from tunerd.ui.server import HttpServer

IMAGES = Path(__file__).parents[1] / "docs" / "images"
LLM, LATER = "llm-pretrain", "llm-finetune"
STEPS, QUICK_STEPS, JOBS = 35, 3, 16
"""A step is a day."""
COLOURS, WIDTH, HEIGHT = 96, 1100, 860
NARROW, NARROW_HEIGHT = 390, 780
USERS = ("ana", "boris", "chen", "dina")
STUBBORN = "eve"
"""Launches what she always launched."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=IMAGES, metavar="FOLDER")
    parser.add_argument("--days", type=int, default=STEPS, help="of the cluster's life")
    parser.add_argument("--quick", action="store_true", help="of three days, and kept nowhere")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="tunerd-screenshots-") as folder:
        if options.quick:
            options.days, options.folder = QUICK_STEPS, Path(folder) / "images"
        options.folder.mkdir(parents=True, exist_ok=True)
        world = cluster(Path(folder) / "world", options.days)
        with world.opened() as store, sync_playwright() as playwright:
            pages = Pages(store, arguments=[f"--settings={world.settings}"])
            server = HttpServer("127.0.0.1", 0, pages=pages)
            executable = os.environ.get("TUNERD_TEST_CHROMIUM") or shutil.which("chromium")
            root = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=executable, args=root)
            try:
                for name, size in pictures(browser, server.url, options.folder):
                    print(f"  {name:24} {size / 1024:6.0f} KiB")
            finally:
                browser.close()
                pages.close()
                server.close()
    return 0


def pictures(browser: Browser, url: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Take them; gives names and bytes."""
    study = f"/studies/{LLM}"
    key = parse_study(shipped_study(LLM)).context_key(CONTEXTS[1])
    taken = {
        "studies": ("/", 520),
        "study": (study, 1150),
        "context": (context_url(LLM, key), HEIGHT),
        "ledger": (f"{study}/ledger?days=30", HEIGHT),
    }
    for name, (path, height) in taken.items():
        page = browser.new_page(viewport={"width": WIDTH, "height": height})
        yield name, keep(opened(page, url + path), folder / f"page-{name}.png")
    page = browser.new_page(
        viewport={"width": NARROW, "height": NARROW_HEIGHT}, color_scheme="dark"
    )
    yield "phone", keep(opened(page, url + study), folder / "page-phone.png")


def opened(page: Page, url: str) -> Page:
    """A page with everything that is fetched after it."""
    page.goto(url)
    page.wait_for_function(
        "() => !document.querySelector('meta[http-equiv=refresh]')", timeout=120_000
    )
    for part in page.query_selector_all("[data-load]"):
        page.wait_for_function("e => e.querySelector('h2')", arg=part, timeout=120_000)
    return page


def keep(page: Page, file: Path) -> int:
    """Write what the window shows, in few colours; returns the bytes."""
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    page.close()
    shot.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
    return file.stat().st_size


def cluster(folder: Path, days: int) -> World:
    """A store of two studies: one that is followed, and a young one in mode approve."""
    world = file_of(folder)
    time = Time(datetime.now(UTC) - timedelta(days=days - 1, hours=3))
    texts = {LLM: shipped_study(LLM), LATER: shipped_study(LLM)}
    texts[LATER] = texts[LATER].replace(f'name = "{LLM}"', f'name = "{LATER}"')
    texts[LATER] = texts[LATER].replace('mode = "publish"', 'mode = "approve"')
    texts[LLM] = texts[LLM].replace("explore_share = 0.8", "explore_share = 0.2")
    with world.opened() as store:
        tuning = Tuning(store, time, Heard())
        studies = {name: parse_study(text) for name, text in texts.items()}
        for study in studies.values():
            store.publish_generation(
                study.name, study.content_hash, study.text, "screenshots", time.now()
            )
        tune = tuning.start()
        for day in counted("days", range(days)):
            _launch(store, studies[LLM], CONTEXTS[:4], day, time)
            if day > days - 8:
                _launch(store, studies[LATER], CONTEXTS[4:6], day, time)
            tuning.run(tune)
            time.pass_(days=1)
        tune.close()
        tune._background.shutdown()
    return world


def _launch(
    store: Store, study: Study, contexts: Sequence[dict[str, Scalar]], day: int, time: Time
) -> None:
    """A day's jobs."""
    simulator = simulator_for(parse_study(shipped_study(LLM)))
    rng = np.random.default_rng(day)
    jobs = []
    for number in range(JOBS):
        context = contexts[number % len(contexts)]
        user = STUBBORN if number % 5 == 4 else USERS[number % len(USERS)]
        at = time.now() - timedelta(minutes=20 * (JOBS - number))
        jobs.append(_job(store, study, simulator, context, f"{day}-{number}", user, at, rng))
    with store.transaction() as tx:
        tx.add_observations(study.name, jobs, time.now())


def _job(
    store: Store,
    study: Study,
    simulator: CostSimulator,
    context: dict[str, Scalar],
    number: str,
    user: str,
    at: datetime,
    rng: np.random.Generator,
) -> Observation:
    config: dict[str, Value] = dict(study.baseline(context) or {})
    recommendation = candidate = None
    row = store.recommendation(study.name, study.context_key(study.clean_context(context)))
    if user != STUBBORN and row is not None and row.state == "active":
        message = from_bytes(row.value.encode())
        recommendation = message.recommendation_id
        place = float(rng.random())
        for offer in message.candidates:
            place -= offer.share
            if place < 0:
                config, candidate = dict(offer.config), offer.candidate_id
                break
        else:
            if message.incumbent is not None:
                config = dict(message.incumbent.config)
    elif user != STUBBORN and rng.random() < 0.4:
        space = SearchSpace(study, context)
        config = space.decode(space.sample(1, rng)[0])
    run = simulator.run(context, config, job_rng(1, context, config, sum(map(ord, number))))
    hours = max(run.duration_s, 600.0) / 3600
    return Observation(
        study=study.name,
        source="slurm/cluster-a",
        event_id=f"{study.name}-{number}",
        job_id=f"{user}-{number}",
        status=run.status,
        finished_at=at,
        context=context,
        config=config,
        metrics=dict(run.metrics),
        gpus=int(context["n_gpus"] or 1),
        user=user,
        recommendation_id=recommendation,
        candidate_id=candidate,
        extra={"started_at": (at - timedelta(hours=hours)).isoformat()},
        content_hash=f"{study.name}-{number}",
    )


if __name__ == "__main__":
    sys.exit(main())
