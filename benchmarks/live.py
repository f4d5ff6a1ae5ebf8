"""Real trainings tuned live: tunerd's campaign beside random search and Optuna, run by run.

The trainings of :mod:`benchmarks.measure` run on this machine, one at a time, everybody's in turn.
tunerd is a daemon of its own that is told nothing beforehand; it asks for runs by ``tunerd
campaign`` and hears of them by events, as any cluster would do it. While a run lasts the daemon
stands still, so that it disturbs nobody. A run that others disturbed is repeated at once.

Who is best so far is luck in part. So at the end what each had found after 30, 60 and 100 runs is
measured anew, several times in turns, and these medians are compared. An interrupted program goes
on where it was::

    python -m benchmarks.live --check                          # 3 seeds, 60 runs each
    python -m benchmarks.live --seeds 3 --runs 100 --contexts 2 --out DIR
"""

import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.kit import Bars, Daemon, arguments
from benchmarks.workloads.machine import CONTEXTS, STUDY, Limits, Machine, Outcome, machine
from benchmarks.yardsticks.comparison import Values, difference
from tests.servers import wait_until
from tunerd.cli.progress import Show, progress
from tunerd.client import Choice, JobReporter, Recommendations
from tunerd.core.observation import Value
from tunerd.core.space import SearchSpace
from tunerd.core.study_file import parse_study

OUT = Path(__file__).parent / "results" / "live"
LIMITS = Limits(window_s=0.25, limit_s=3.0)
QUICK = Limits(window_s=0.05, limit_s=3.0, tries=1, patience_s=0.0)
PLAYED = (6, 4, 5)
"""Contexts, the first first: the wider transformer, convolutional net and graph net."""
CHECKPOINTS = (30, 60, 100)
REPEATS = 5
"""Of what was found, measured anew."""
START, ROUND = 10, 5
"""Jobs of tunerd's random start, as many as Optuna has by default; of each round after it."""
DRAWS = 10
"""How often Optuna is asked again when it proposes what it has tried."""
ANSWER_S = 120.0

Config = dict[str, Value]


@dataclass(frozen=True)
class Game:
    """One seed in one context."""

    seed: int
    context: Mapping[str, Value]

    @property
    def name(self) -> str:
        return "-".join(str(value) for value in (*self.context.values(), self.seed))


class Contestant(Protocol):
    """Proposes configurations one after the other, each once the former is known."""

    def ask(self) -> Config: ...

    def tell(self, number: int, config: Config, outcome: Outcome) -> None: ...


class RandomSearch:
    """Draws from the space, evenly."""

    def __init__(self, game: Game) -> None:
        self._space = SearchSpace(parse_study(STUDY.read_text()), game.context)
        self._seed, self._number = game.seed, 0

    def ask(self) -> Config:
        rng = np.random.default_rng([self._seed, self._number])
        return self._space.decode(self._space.sample(1, rng)[0])

    def tell(self, number: int, config: Config, outcome: Outcome) -> None:
        del config, outcome
        self._number = number + 1


class OptunaSearch:
    """One of Optuna's samplers with its defaults, but that what was tried is drawn again. A failed
    run is a trial with a broken constraint."""

    def __init__(self, game: Game, sampler: str) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna, self._sampler, self._seed = optuna, sampler, game.seed
        self._parameters = parse_study(STUDY.read_text()).parameters
        self._trials: list[Any] = []
        self._tried: list[Config] = []
        self._failed = False
        # Places among the values: in an order for numbers, in none for categories.
        self._distributions = {
            p.name: optuna.distributions.IntDistribution(0, len(p.choices) - 1)
            if p.type in ("int", "float")
            else optuna.distributions.CategoricalDistribution(range(len(p.choices)))
            for p in self._parameters
        }

    def ask(self) -> Config:
        seed = 1000 * self._seed + len(self._tried)
        sampler = {
            "optuna_tpe": self._optuna.samplers.TPESampler,
            "optuna_gp": self._optuna.samplers.GPSampler,
        }[self._sampler](seed=seed)
        study = self._optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials([self._trial(*known) for known in self._trials])
        for _ in range(DRAWS):
            drawn = study.ask(fixed_distributions=self._distributions).params
            config: Config = {p.name: p.choices[drawn[p.name]] for p in self._parameters}
            if config not in self._tried:
                break
        return config

    def tell(self, number: int, config: Config, outcome: Outcome) -> None:
        del number
        self._tried.append(config)
        self._trials.append((config, speed(outcome)))

    def _trial(self, config: Config, value: float) -> Any:
        values = [value for _, value in self._trials if value]
        places = {p.name: p.index(config[p.name]) for p in self._parameters}
        failed = len(values) < len(self._trials)
        return self._optuna.trial.create_trial(
            params=places,
            distributions=self._distributions,
            # Speeds are compared by their ratios, as tunerd compares them.
            value=math.log(value or statistics.geometric_mean(values or [1.0])),
            constraints={"runs": -1.0 if value else 1.0} if failed else None,
        )


class Campaign:
    """A daemon in a folder of its own, and what a scheduler does that follows its campaign."""

    def __init__(self, game: Game, runs: int, round_size: int, folder: Path) -> None:
        text = STUDY.read_text().replace('mode = "observe"', 'mode = "publish"')
        self._study, self._game = parse_study(text), game
        self._key = self._study.context_key(dict(game.context))
        self.daemon = Daemon(folder, {self._study.name: text}, name="tunerd")
        self.daemon.start()
        stream = folder / "data" / "stream"
        self._reporter = JobReporter.jsonl(stream, source="live/live")
        self._recommendations = Recommendations.follow_jsonl(stream)
        self._choice: Choice | None = None
        self._launched: dict[str, int] = {}
        self._number = 0
        begun = folder / "campaign"
        if not begun.exists():
            self._begin(runs, round_size)
            begun.touch()

    def _begin(self, runs: int, round_size: int) -> None:
        start = min(START, runs)
        rounds = -(-(max(CHECKPOINTS) - start) // round_size)
        command = [sys.executable, "-m", "tunerd", "campaign", self._study.name]
        command += ["--settings", str(self.daemon.file), "--jobs", str(start)]
        command += ["--rounds", str(rounds), "--round-size", str(round_size)]
        for name, value in self._game.context.items():
            command += ["--context", f"{name}={value}"]
        subprocess.run(command, check=True, capture_output=True)

    def ask(self) -> Config:
        wait_until(self._wanted, ANSWER_S, "a round of the campaign")
        assert self._choice is not None
        return self._choice.config

    def _wanted(self) -> bool:
        """Whether the round has something that was not launched yet."""
        self._recommendations.poll()
        message = self._recommendations.find(self._key)
        self._choice = self._recommendations.choose(
            self._key, self._job_id(self._number), launched=self._launched
        )
        wanted = {c["candidate_id"] for c in (message or {}).get("candidates", ()) if c["wanted"]}
        return self._choice is not None and self._choice.candidate_id in wanted

    def tell(self, number: int, config: Config, outcome: Outcome) -> None:
        """Report a run. One that an earlier process reported is known, and counts once."""
        metrics = {name: outcome[name] for name in ("samples_per_s",) if name in outcome}
        choice, self._choice = self._choice, None
        if choice is None and (candidate := outcome.get("candidate_id")):
            self._launched[candidate] = self._launched.get(candidate, 0) + 1
            choice = Choice(config, "exploit", outcome["recommendation_id"], candidate)
        elif choice is not None:
            outcome["candidate_id"] = choice.candidate_id
            outcome["recommendation_id"] = choice.recommendation_id
        self._reporter.report(
            study=self._study.name,
            job_id=self._job_id(number),
            status=outcome["status"],
            context=self._game.context,
            config=config,
            metrics=metrics,
            choice=choice,
        )
        self._number = number + 1

    def _job_id(self, number: int) -> str:
        return f"{self._game.name}-{number:03}"

    @contextmanager
    def still(self) -> Iterator[None]:
        """The daemon's processes do nothing meanwhile."""
        assert self.daemon.process is not None
        pids = [self.daemon.process.pid, self.daemon.tuner_pid]
        for pid in pids:
            if pid is not None:
                os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                if pid is not None:
                    os.kill(pid, signal.SIGCONT)


class Record:
    """What was run, a line each, in a file: what an interrupted program goes on from."""

    def __init__(self, file: Path) -> None:
        text = file.read_text() if file.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        file.write_text(whole)
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in whole.splitlines()]
        self._file = file

    def add(self, line: Mapping[str, Any]) -> None:
        """Keep one more."""
        self.lines.append(dict(line))
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def of(self, game: Game, who: str) -> list[dict[str, Any]]:
        """The runs of one contestant, in their order."""
        mine = {"game": game.name, "who": who}
        return [line for line in self.lines if all(line.get(k) == v for k, v in mine.items())]


def speed(outcome: Outcome) -> float:
    """Samples per second; 0 of what did not run."""
    return float(outcome.get("samples_per_s", 0.0)) if outcome["status"] == "succeeded" else 0.0


def play(
    game: Game, options: Any, cluster: Machine, record: Record, told: Callable[[], None]
) -> None:
    """Everybody's runs of one game, in turn."""
    if all(len(record.of(game, who)) >= options.runs for who in options.who):
        return
    with ExitStack() as stack:
        makers: dict[str, Callable[[], Contestant]] = {
            "random": lambda: RandomSearch(game),
            "optuna_tpe": lambda: OptunaSearch(game, "optuna_tpe"),
            "optuna_gp": lambda: OptunaSearch(game, "optuna_gp"),
        }
        campaign = Campaign(game, options.runs, options.round_size, options.out / game.name)
        stack.callback(campaign.daemon.stop)
        contestants: dict[str, Contestant] = {"tunerd": campaign}
        contestants |= {who: makers[who]() for who in options.who if who != "tunerd"}
        for who, contestant in contestants.items():
            for line in record.of(game, who):
                contestant.tell(line["number"], line["config"], line["outcome"])
        for number in range(options.runs):
            for who, contestant in contestants.items():
                if number < len(record.of(game, who)):
                    continue
                config = contestant.ask()
                with campaign.still():
                    outcome = cluster.run_alone(game.context, config)
                contestant.tell(number, config, outcome)
                line = {"game": game.name, "who": who, "number": number}
                record.add({**line, "config": config, "outcome": outcome})
                told()


def found(record: Record, game: Game, who: str, runs: int) -> Config | None:
    """The fastest configuration of the first so many runs."""
    lines = [line for line in record.of(game, who)[:runs] if speed(line["outcome"])]
    if not lines:
        return None
    best: Config = max(lines, key=lambda line: speed(line["outcome"]))["config"]
    return best


def check(
    games: Sequence[Game], options: Any, cluster: Machine, record: Record, show: Show
) -> dict[tuple[str, str], float]:
    """Measure anew what was found, in turns; median speed by context and configuration."""
    wanted = {
        _place(game.context, config): (game.context, config)
        for game in games
        for who in options.who
        for runs in checkpoints(options.runs)
        if (config := found(record, game, who, runs)) is not None
    }
    known: dict[tuple[str, str], list[float]] = {place: [] for place in wanted}
    for line in record.lines:
        if line.get("checked") and tuple(line["checked"]) in known:
            known[tuple(line["checked"])].append(speed(line["outcome"]))
    repeats = 1 if options.quick else REPEATS
    done, total = sum(map(len, known.values())), repeats * len(wanted)
    for turn in range(repeats):
        order = sorted(wanted)
        random.Random(turn).shuffle(order)
        for place in order:
            if len(known[place]) <= turn:
                outcome = cluster.run_alone(*wanted[place])
                record.add({"checked": place, "outcome": outcome})
                known[place].append(speed(outcome))
                show("measured anew", done := done + 1, total)
    return {place: statistics.median(speeds) for place, speeds in known.items()}


def _place(context: Mapping[str, Value], config: Config) -> tuple[str, str]:
    return json.dumps(dict(context)), json.dumps(config, sort_keys=True)


def checkpoints(runs: int) -> list[int]:
    """After how many runs it is looked at what was found; at the end in any case."""
    return sorted({*(n for n in CHECKPOINTS if n < runs), runs})


def judge(
    bars: Bars,
    games: Sequence[Game],
    options: Any,
    record: Record,
    speeds: Mapping[tuple[str, str], float],
) -> None:
    """Compare what was found, by ratios."""
    for runs in checkpoints(options.runs):
        values: dict[str, Values] = {}
        for who in options.who:
            values[who] = {
                (json.dumps(dict(game.context)), game.seed): math.log(
                    max(speeds.get(_place(game.context, config), 0.0) if config else 0.0, 1.0)
                )
                for game in games
                for config in [found(record, game, who, runs)]
            }
            mean = math.exp(statistics.mean(values[who].values()))
            bars.say(f"after {runs} runs: {who}, mean of what it had found", mean, "samples/s")
        for who in options.who:
            if who != "tunerd":
                lead = difference(values["tunerd"], values[who], larger_is_better=True)
                name, bar = f"after {runs} runs: tunerd beside {who}", "not behind beyond luck"
                text = f"%, {100 * lead.low:+.1f} to {100 * lead.high:+.1f}"
                bars.hold(name, 100 * lead.mean, not lead.worse, bar, text)


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=60, help="of each, in each context and seed")
    parser.add_argument("--contexts", type=int, default=1, choices=range(1, len(PLAYED) + 1))
    parser.add_argument("--round-size", type=int, default=ROUND, help="of tunerd's campaign")
    parser.add_argument(
        "--who", nargs="+", default=["optuna_tpe", "optuna_gp", "random"], metavar="NAME"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the runs")
    options = parser.parse_args(argv)
    options.who = ["tunerd", *options.who]
    if options.quick:
        options.seeds, options.runs, options.contexts = 1, min(options.runs, START + 2), 1
    options.out = options.out.absolute()
    options.out.mkdir(parents=True, exist_ok=True)
    contexts = [CONTEXTS[at] for at in PLAYED[: options.contexts]]
    games = [Game(seed, context) for seed in range(options.seeds) for context in contexts]
    record, bars = Record(options.out / "runs.jsonl"), Bars("live")
    if find_spec("torch") is None or find_spec("optuna") is None:
        bars.say("skipped: no torch or no Optuna here", "`make peers`")
        return 1 if options.check else 0
    with machine(QUICK if options.quick else LIMITS) as cluster, progress() as show:
        total = len(games) * len(options.who) * options.runs
        before = done = sum(len(record.of(game, who)) for game in games for who in options.who)

        def told() -> None:
            nonlocal done
            done += 1
            show("runs", done - before, total - before)

        for game in games:
            play(game, options, cluster, record, told)
        speeds = check(games, options, cluster, record, show)
    judge(bars, games, options, record, speeds)
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
