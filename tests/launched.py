"""A folder in which programs are launched as tunerd says, and what is told of them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["LaunchFolder"]


@dataclass(frozen=True)
class LaunchFolder:
    """Where a program runs that is told of on a stream of files."""

    folder: Path

    @property
    def stream(self) -> Path:
        return self.folder / "tunerd-data" / "stream"

    @property
    def spool(self) -> list[Path]:
        """Files of jobs that are not told yet."""
        return sorted((self.folder / "state" / "tunerd" / "exec" / "spool").glob("*/*"))

    def events(self) -> list[dict[str, Any]]:
        """What was sent, in order."""
        try:
            text = (self.stream / "tunerd.jobs.jsonl").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines()]

    def event(self) -> dict[str, Any]:
        """The only one."""
        (event,) = self.events()
        return event

    def recommend(self, message: dict[str, Any]) -> None:
        """Publish a recommendation, as a daemon does."""
        line = json.dumps({"key": message["context_key"], "value": message, "headers": {}})
        with (self.stream / "tunerd.recommendations.jsonl").open("a") as file:
            file.write(line + "\n")
