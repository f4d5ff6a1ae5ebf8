"""``tunerd explain``: which parameters and context features matter, and why a recommendation."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunerd.cli.options import (
    json_option,
    open_the_store,
    read_settings,
    settings_option,
    study_argument,
)
from tunerd.cli.progress import progress

if TYPE_CHECKING:
    from tunerd.core.explain.importance import Method
    from tunerd.queries.explanation import SelectedRecommendation, StudyExplanation
    from tunerd.queries.saved_model import SavedStudyModel
    from tunerd.store import Store

__all__ = ["explain"]

MOST_JOBS = 1_000


@click.command()
@study_argument()
@settings_option
@click.option(
    "--recommendation", "wanted", metavar="ID", help="Explain this recommendation, or proposal."
)
@click.option(
    "--context",
    multiple=True,
    metavar="NAME=VALUE",
    help="… or the one that stands in this context; name every context feature.",
)
@click.option(
    "--method",
    type=click.Choice(["shap", "permutation"]),
    help="How to ask what matters overall; shap is for boosted_trees alone.  [default: shap for "
    "boosted_trees, else permutation]",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=10),
    default=MOST_JOBS,
    show_default=True,
    help="Ask over at most so many jobs.",
)
@json_option
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw it: .png, .svg or .pdf.",
)
def explain(
    study: str,
    file: Path | None,
    wanted: str | None,
    context: tuple[str, ...],
    method: "Method | None",
    jobs: int,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Say which parameters and context features matter in STUDY, by the model that serves it.

    With --recommendation or --context, say of each recommended configuration what its changes
    against the incumbent add to the predicted gain, and to the probability to run.

    Reads the store; a daemon need not run.
    """
    if wanted is not None and context:
        raise click.UsageError("say either --recommendation or --context")
    if plot is not None and plot.suffix not in (".png", ".svg", ".pdf"):
        raise click.UsageError(f"--plot: {plot.name} should end in .png, .svg or .pdf")
    settings = read_settings(file)
    from tunerd.queries.explanation import explain_one, explain_study
    from tunerd.queries.saved_model import read_learned

    with open_the_store(settings, upgrade=False) as store:
        learned = read_learned(store, study)
        message = _told(store, learned, wanted, context) if wanted or context else None
        predictor = learned.study.predictor.name
        if message is None and method == "shap" and predictor != "boosted_trees":
            raise click.UsageError(
                f"--method: SHAP values are for boosted_trees, this study has {predictor}: say "
                "permutation, or leave it out"
            )
        with progress() as show:

            def tell(done: int, of: int) -> None:
                show("asking the model", done, of)

            made = (
                explain_study(store, learned, jobs, method, tell)
                if message is None
                else explain_one(store, learned, message, tell)
            )
    _show(made, as_json, plot)


def _told(
    store: "Store", learned: "SavedStudyModel", wanted: str | None, context: tuple[str, ...]
) -> "SelectedRecommendation":
    """The recommendation that is meant.

    Raises:
        click.UsageError: there is none; names those that there are.
    """
    from tunerd.cli.contexts import parse_context
    from tunerd.queries.explanation import earlier, standing

    there = standing(store, learned.study)
    if wanted is not None:
        matching = [row for row in there if row.message.recommendation_id == wanted]
        matching += earlier(store, learned.study.name, wanted)
        what = f"no recommendation {wanted} is known of {learned.study.name}"
    else:
        key = learned.study.context_key(parse_context(learned.study, context))
        matching = [row for row in there if row.message.context_key == key]
        what = f"nothing is recommended in {key}"
    if not matching:
        listed = "".join(
            f"\n  {row.message.recommendation_id}  {row.state:<9}  {row.message.context_key}"
            for row in there[:MOST_LISTED]
        )
        more = f"\n  and {len(there) - MOST_LISTED} more" if len(there) > MOST_LISTED else ""
        raise click.UsageError(f"{what}; there are:{listed or ' none yet'}{more}")
    return matching[0]


MOST_LISTED = 20


def _show(made: "StudyExplanation", as_json: bool, plot: Path | None) -> None:
    if plot is not None:
        from tunerd.cli.explain_plot import drawn

        try:
            drawn(made).savefig(plot, dpi=150)
        except OSError as error:
            raise click.UsageError(f"--plot: cannot write {plot}: {error.strerror}") from None
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(made)).decode())
    else:
        from tunerd.cli.explain_view import show

        show(made)
        if plot is not None:
            click.echo(f"The plot is {plot}.")
