"""An Airflow operator that runs a command with what tunerd recommends, and reports how it went.

Copy it into the folder of DAGs, and install tunerd where the workers run
(``pip install --no-deps tunerd``). It was not tried with a running Airflow. A test runs it with
stubs in place of Airflow. It uses ``BaseOperator`` alone, as Airflow 2.4
and later have it.

    TunerdOperator(
        task_id="compress",
        study="compress",
        context={"file": "logs"},
        features={"file": "category"},
        command=["zstd", "-T{threads}", "-{level}", "logs.tar", "-o", "/dev/null"],
        defaults={"threads": 1, "level": 3},
        recommendations="/var/lib/tunerd/recommendations.jsonl",   # tunerd subscribe --file
        stream="/var/lib/tunerd/stream",
    )
"""

import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.exceptions import AirflowException
from airflow.models import BaseOperator

from tunerd.client import JobReporter, RecommendationFile, context_key
from tunerd.exec.fill import fill


class TunerdOperator(BaseOperator):
    """Chooses from a local file, fills ``{parameter}`` into the command, measures the time."""

    template_fields: Sequence[str] = ("command", "context")

    def __init__(
        self,
        *,
        study: str,
        context: Mapping[str, Any],
        features: Mapping[str, Any],
        command: Sequence[str],
        defaults: Mapping[str, Any],
        recommendations: str,
        stream: str,
        metric: str = "wall_s",
        **options: Any,
    ) -> None:
        """``features`` are the types of the study's context features; ``stream`` is the folder of
        its topics."""
        super().__init__(**options)
        self.study, self.context, self.features = study, dict(context), dict(features)
        self.command, self.defaults = list(command), dict(defaults)
        self.recommendations, self.stream, self.metric = recommendations, stream, metric

    def execute(self, context: Any) -> float:
        """Run the command. A try that failed is tried again with what is known to run."""
        task = context["ti"]
        job_id, attempt = f"{task.dag_id}/{task.task_id}/{task.run_id}", task.try_number
        key = context_key(self.study, self.features, self.context)
        choice = RecommendationFile(self.recommendations).choose(key, job_id, attempt=attempt)
        config = {**self.defaults, **(choice.config if choice else {})}
        command = fill(self.command, config, self.context).arguments
        self.log.info("%s: %s", choice.match if choice else "defaults", command)
        started, began = datetime.now(UTC), time.monotonic()
        code = subprocess.run(command, check=False).returncode
        seconds = time.monotonic() - began
        reporter = JobReporter.jsonl(self.stream, source="airflow")
        reporter.report(
            study=self.study,
            job_id=job_id,
            attempt=attempt,
            status="succeeded" if code == 0 else "failed",
            context=self.context,
            config=config,
            metrics={self.metric: seconds} if code == 0 else {},
            choice=choice,
            started_at=started.isoformat(),
        )
        if code != 0:
            raise AirflowException(f"exit code {code}: {command}")
        return seconds
