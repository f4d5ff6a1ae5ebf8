"""What a reader has to keep in mind about this very report."""

from tunerd.report.formatting import plural
from tunerd.report.gather import ReportInputs
from tunerd.report.model import CounterfactualGain, JobCounts

__all__ = ["notes"]

MOSTLY = 0.9


def notes(material: ReportInputs, counts: JobCounts, would: CounterfactualGain | None) -> list[str]:
    """In the order in which they matter."""
    unlearned, incomparable = material.unlearned, material.incomparable
    sentences = [f"{material.in_space}."] if material.in_space else []
    if counts.left_out:
        sentences.append(
            f"Only the latest {counts.jobs:,} jobs of this time were looked at; "
            f"{counts.left_out:,} earlier ones were left out."
        )
    if unlearned:
        sentences.append(
            f"{plural(unlearned, 'job')} in the store are not learned yet and not in it."
        )
    if incomparable:
        sentences.append(
            f"{plural(incomparable, 'job')} were judged by another objective, which the study had "
            "then, and are not in it."
        )
    if material.study.objective.scale == "linear":
        sentences.append(
            "The objective is on a linear scale: gains are relative to the typical job of each "
            "context."
        )
    if counts.did_not_run:
        sentences.append(
            f"{plural(counts.did_not_run, 'job')} did not run. What they cost is not in the gains: "
            "those compare jobs that ran."
        )
    if would and would.gpu_hours and counts.gpu_hours_jobs < MOSTLY * counts.jobs:
        sentences.append(
            f"GPU-hours are those of {counts.gpu_hours_jobs:,} of {plural(counts.jobs, 'job')}, "
            "whose events tell gpus and started_at."
        )
    if would and would.gpu_hours:
        sentences.append(
            "GPU-hours saved suppose that the objective is a speed or a duration of the same work."
        )
    return sentences
