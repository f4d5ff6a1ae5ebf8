"""A real Prometheus that scrapes one daemon, with the configuration that ``deploy/`` has.

Only addresses and intervals differ from what an operator gets.
"""

import json
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.servers import MissingServerError, end, free_ports, tied, wait_until

__all__ = ["PrometheusServer", "QueryError"]

CONFIG = Path(__file__).parents[2] / "deploy/prometheus/prometheus.yml"
START_TIMEOUT_S = 60.0


class QueryError(Exception):
    """Raised when Prometheus refuses an expression; the text is what it says."""


class PrometheusServer:
    """Prometheus on a free port of 127.0.0.1; all that it writes is in its folder."""

    def __init__(self, folder: Path, target: str, rules: str, every_s: float = 1.0) -> None:
        """Scrape ``target`` (``host:port``) and evaluate ``rules`` (YAML) so often."""
        self.folder = folder
        (self.port,) = free_ports(1)
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "prometheus.log"
        self._every_s = every_s
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "alerts.yml").write_text(rules)
        self._configure([target])

    def start(self) -> None:
        """Start and wait until it is ready (about 1 s).

        Raises MissingServerError where it is not installed. It dies with the thread that calls
        this.
        """
        program = shutil.which("prometheus")
        if program is None:
            raise MissingServerError("no `prometheus` on the PATH; on Debian, install prometheus")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *tied(),
                    program,
                    f"--config.file={self.folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    "--storage.tsdb.retention.time=10y",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._ready, START_TIMEOUT_S, f"Prometheus starts ({self.log})")

    def stop(self) -> None:
        """Stop it."""
        if self._process is not None:
            end(self._process, signal.SIGTERM)
            self._process = None

    def scrape_nothing(self) -> None:
        """Take the target out of its configuration."""
        assert self._process is not None
        self._configure([])
        self._process.send_signal(signal.SIGHUP)

    # -- what it says -----------------------------------------------------------------------

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Series that an expression has now. Raises QueryError."""
        found: list[dict[str, Any]] = self._get("/api/v1/query", query=expression)["result"]
        return found

    def label_values(self, label: str, selector: str) -> list[str]:
        """Values of a label over the series of a selector: how Grafana fills in a variable."""
        found: list[str] = self._get(f"/api/v1/label/{label}/values", **{"match[]": selector})
        return found

    def firing(self) -> set[str]:
        """Names of the alerts that fire now."""
        alerts: Sequence[Mapping[str, Any]] = self._get("/api/v1/alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    def fired(self) -> set[str]:
        """Names of all alerts that ever fired here."""
        series = self.query(
            'count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[1d]))'
        )
        return {one["metric"]["alertname"] for one in series}

    def rules(self) -> dict[str, str]:
        """Health of each rule by its name, ``ok`` or what is wrong."""
        groups = self._get("/api/v1/rules")["groups"]
        return {
            rule["name"]: rule.get("lastError") or rule["health"]
            for group in groups
            for rule in group["rules"]
        }

    def targets(self) -> list[str]:
        """Health of each target of the job ``tunerd``: ``up``, ``down`` or ``unknown``."""
        active = self._get("/api/v1/targets")["activeTargets"]
        return [one["health"] for one in active if one["labels"]["job"] == "tunerd"]

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self.port}{path}?{urlencode(parameters)}"
        try:
            with urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except HTTPError as error:
            with error:
                raise QueryError(json.load(error).get("error", str(error))) from None

    def _configure(self, targets: Sequence[str]) -> None:
        config = yaml.safe_load(CONFIG.read_text())
        every = f"{round(self._every_s * 1000)}ms"
        config["global"] |= {"scrape_interval": every, "evaluation_interval": every}
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": list(targets)}]
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def _ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            said = self.log.read_text(errors="replace")
            raise RuntimeError(f"Prometheus ended while starting:\n{said[-2000:]}")
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2):
                return True
        except (URLError, OSError):
            return False
