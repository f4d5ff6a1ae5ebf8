"""Tables that sum up or count other rows: some are runs all the same, and which are not is said."""

import random
from pathlib import Path

import pytest

from tests.lab.tables.test_guess import roles
from tests.lab.tables.test_more_strangers import saved
from tests.lab.tables.test_strangers import GRID, read, speed
from tunerd.errors import MisconfiguredError
from tunerd.lab.tables.files import open_table

DESCRIBED = [
    "threads,48.0,3.75,2.71,1.0,1.75,3.0,5.0,8.0",
    "batch,48.0,37.3,20.1,16.0,16.0,32.0,64.0,64.0",
    "time_s,48.0,3.87,2.24,1.2,2.34,3.12,5.01,10.3",
    "throughput,48.0,500.3,22.3,100.0,115.0,220.0,525.0,630.0",
]


@pytest.mark.parametrize(
    ("header", "lines", "reason"),
    [
        (",count,mean,std,min,25%,50%,75%,max", DESCRIBED, "columns like their statistics"),
        ("column,count,mean,std,min,25%,50%,75%,max", DESCRIBED, "columns like their statistics"),
        (
            "\\".join(("actual", "predicted")) + ",cat,dog,bird,fish",
            ["cat,50,3,2,1", "dog,4,45,1,2", "bird,1,2,48,3", "fish,7,1,2,50"],
            "matrix",
        ),
        (
            ",pred_cat,pred_dog,pred_bird,pred_fish",
            ["true_cat,50,3,2,1", "true_dog,4,45,1,2", "true_bird,1,2,48,3", "true_fish,7,1,2,50"],
            "matrix",
        ),
        (
            ",0,1,2,3",
            ["0,50,3,2,1", "1,4,45,1,2", "2,1,2,48,3", "3,7,1,2,50"],
            "matrix",
        ),
        (
            "node_kind,a100,h100,v100,All",
            [
                "big,50,30,20,100",
                "mid,4,5,6,15",
                "fat,1,2,3,6",
                "lean,7,5,2,14",
                "All,62,42,31,135",
            ],
            "sum of the others",
        ),
        (
            "partition,COMPLETED,FAILED,TIMEOUT",
            ["gpu,50,4,1", "cpu,120,13,3", "debug,400,100,2", "bigmem,31,4,2"],
            "ends of jobs",
        ),
        (
            "user,1,2,4,8",
            ["ann,50,4,1,0", "bob,120,13,3,4", "cid,400,100,0,1", "dan,31,4,2,0"],
            "counts",
        ),
    ],
)
def test_what_sums_up_or_counts_other_rows_is_said_to_be_no_runs(
    header: str, lines: list[str], reason: str, tmp_path: Path
) -> None:
    path = saved(tmp_path / "runs.csv", header, lines)
    try:
        guesses, _ = read(path)
    except MisconfiguredError as error:
        assert reason in str(error)  # noqa: PT017 - either is right
        return
    assert any(reason in doubt for doubt in guesses.doubts)
    assert all(
        guess.unsure for guess in guesses.having("objective", "parameter", "context", "metric")
    )


def test_cells_of_whole_numbers_are_runs_where_none_is_zero(tmp_path: Path) -> None:
    """Nothing has a speed of 0."""
    lines = [f"{a},{','.join(str(int(speed(a, b))) for b in (16, 32, 64))}" for a in (1, 2, 4, 8)]
    guesses, _ = read(saved(tmp_path / "runs.csv", "threads\\batch,16,32,64", lines))
    assert guesses.profile.rows == 12
    assert not guesses.doubts


@pytest.mark.parametrize(
    "header", ["threads\\batch,16,32,64", "threads,batch 16,batch 32,batch 64"]
)
def test_a_run_that_failed_makes_no_counts_of_what_is_called_like_settings(
    header: str, tmp_path: Path
) -> None:
    lines = [f"{a},{','.join(str(int(speed(a, b))) for b in (16, 32, 64))}" for a in (1, 2, 4)]
    guesses, _ = read(saved(tmp_path / "runs.csv", header, [*lines, "8,0,9000,9100"]))
    assert guesses.profile.rows == 12
    assert not guesses.doubts


@pytest.mark.parametrize("corner", ["ranks\\threads", ""])
def test_two_settings_may_have_the_same_values(corner: str, tmp_path: Path) -> None:
    """A grid of 1, 2, 4 and 8 is no matrix."""
    sizes = (1, 2, 4, 8)
    lines = [f"{a},{','.join(str(speed(a, 16 * b)) for b in sizes)}" for a in sizes]
    guesses, _ = read(saved(tmp_path / "runs.csv", f"{corner},1,2,4,8", lines))
    assert guesses.profile.rows == 16
    assert not guesses.doubts


@pytest.mark.parametrize(
    ("header", "count", "objective"),
    [
        ("threads,batch,mean,std,count", "count", "mean"),
        ("threads,batch,mean,sd,n", "n", "mean"),
        ("threads,batch,time_s_mean,time_s_std,time_s_count", "time_s_count", "time_s_mean"),
    ],
)
@pytest.mark.parametrize("several", [True, False])
def test_runs_that_were_summed_up_for_each_configuration_are_runs(
    header: str, count: str, objective: str, several: bool, tmp_path: Path
) -> None:
    """How many runs a mean is of was a context, which parts the configurations."""
    rng = random.Random(3)
    lines = [
        f"{a},{b},{speed(a, b)},{rng.uniform(0, 2):.3f},{rng.choice([3, 5]) if several else 5}"
        for a, b in GRID
    ]
    guesses, _ = read(saved(tmp_path / "runs.csv", header, lines))
    found = roles(guesses)
    assert guesses.objective.column.name == objective
    assert found[count] == "ignored"
    assert {c for c, role in found.items() if role in ("parameter", "context")} == {
        "threads",
        "batch",
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "    threads         time_s     \n Min.   :1.00   Min.   : 1.204  \n"
            " Mean   :3.75   Mean   : 3.870  \n",
            r"R's summary\(\)",
        ),
        (
            "> summary(runs)\n     algo              threads     \n"
            " Length:48          Min.   :1.00   \n Class :character   Mean   :2.00   \n",
            r"R's summary\(\)",
        ),
        (
            "bs16k_qd4: (g=0): rw=randread, bs=(R) 16KiB-16KiB, ioengine=libaio, iodepth=4\n",
            "--output-format=json",
        ),
        ('"Series";"Time";"Value"\n"load";"2025-03-01T10:00:00Z";1\n', "Grafana"),
        ("# started on Mon Mar  3\n\n9.1;msec;task-clock;912;100.00;1.0;CPUs\n", "perf stat -x"),
    ],
)
def test_what_programs_print_for_people_is_refused_with_what_to_do(
    text: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "printed.txt"
    path.write_text(text)
    with pytest.raises(MisconfiguredError, match=reason):
        open_table(path)


def test_statistics_as_pandas_prints_them_are_said_to_be_no_runs(tmp_path: Path) -> None:
    rows = [line.split(",") for line in ("row,count,mean,std,min,25%,50%,75%,max", *DESCRIBED)]
    rows[0][0] = ""
    path = tmp_path / "printed.txt"
    path.write_text("".join("".join(f"{cell:>12}" for cell in row) + "\n" for row in rows))
    try:
        guesses, _ = read(path)
    except MisconfiguredError as error:
        assert "statistics" in str(error)  # noqa: PT017 - either is right
        return
    assert any("statistics" in doubt for doubt in guesses.doubts)


def test_moments_at_even_times_are_said_to_be_no_runs(tmp_path: Path) -> None:
    rng = random.Random(3)
    lines = [
        f"2025-03-01 10:{k:02d}:00,{rng.uniform(10, 99):.1f},{rng.uniform(10, 99):.1f}"
        for k in range(40)
    ]
    guesses, _ = read(saved(tmp_path / "panel.csv", "Time,n1,n2", lines))
    assert any("moments" in doubt for doubt in guesses.doubts)


def test_a_cycle_time_alone_is_minimised_and_asked_about(tmp_path: Path) -> None:
    """Horovod sets it, and most others measure it."""
    lines = [f"{a},{b},{speed(a, b)}" for a, b in GRID]
    guesses, _ = read(saved(tmp_path / "runs.csv", "threads,batch,cycle_time", lines))
    assert (guesses.objective.column.name, guesses.goal) == ("cycle_time", "minimize")
    assert guesses.objective.unsure
    assert {guess.column.name for guess in guesses.having("parameter")} == {"threads", "batch"}


def test_whether_a_promise_was_kept_is_no_setting(tmp_path: Path) -> None:
    lines = [f"{a},{b},{speed(a, b)},{'yes' if (a + b) % 3 else 'no'}" for a, b in GRID]
    guesses, _ = read(saved(tmp_path / "runs.csv", "replicas,batch,p95_ms,SLA met", lines))
    assert roles(guesses)["SLA met"] == "label"


def test_f1_beside_f2_is_an_objective_and_no_score(tmp_path: Path) -> None:
    rng = random.Random(3)
    lines = [",".join(f"{rng.random():.5f}" for _ in range(4)) for _ in range(36)]
    guesses, _ = read(saved(tmp_path / "front.csv", "x0,x1,f1,f2", lines))
    assert guesses.objective.column.name in ("f1", "f2")
    assert guesses.goal_sure < 0.5
    assert {roles(guesses)[name] for name in ("f1", "f2")} == {"objective", "metric"}


def test_timeouts_are_counted_and_a_timeout_is_set(tmp_path: Path) -> None:
    lines = [f"{a},{b},{speed(a, b)},{(a + b) % 3}" for a, b in GRID * 3]
    guesses, _ = read(saved(tmp_path / "load.csv", "threads,timeout,rps,timeouts", lines))
    found = roles(guesses)
    assert (found["timeout"], found["timeouts"]) == ("parameter", "metric")
