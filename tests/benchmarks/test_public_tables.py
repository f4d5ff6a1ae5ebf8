"""Tables of others, as their repositories have them, become tables that benchmarks read."""

from pathlib import Path

import pytest

from benchmarks import public_tables
from benchmarks.tables import read_table
from tunerd.core.study_file import parse_study

CLOUD = """\
,provider,A_family,A_vcpu,B_family,B_vcpu,C_family,C_type,C_vcpu,nodes,workload,target_cost,\
target_runtime,status
0,A,1,1,,,,,,3,one-xgboost,0.004,78.5,ok
1,B,,,0,0,,,,5,two-kmeans,0.010,27.25,ok
2,C,,,,,0,1,0,2,one-xgboost,0.018,598.75,Timed out.
3,C,,,,,1.0,2.0,1.0,4,one-xgboost,0.02,12.5,ok
"""
HEFFTE = """\
p0,p1,p2,p3,p4,p5,p6,p7,p8,p9,c0,FLOPS,elapsed_sec
float,256, , ,-p2p_pl,-slabs, ,0.611,0.63,8,cufft,-121.5,5.3
double,256,-reorder,-a2av,-p2p,-pencils,-r2c_dir 2,0.78,0.37,2,cufft,1.0,27.3
double,256,-reorder,-a2av,-p2p,-pencils,-r2c_dir 2,0.78,0.37,0.25,cufft,-99,27.3
"""


def test_they_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, text in (
        (public_tables.CLOUD, CLOUD),
        (public_tables.HEFFTE / "Polaris_02n_0256a" / "results.csv", HEFFTE),
        (public_tables.HEFFTE / "Polaris_02n_0064a_NoTopology" / "results.csv", HEFFTE),
    ):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(text)
    assert public_tables.main([str(tmp_path), str(tmp_path / "tables")]) == 0
    assert "multi_cloud_cost.csv: 4 rows" in capsys.readouterr().out

    cloud = read_table("multi_cloud_time", tmp_path / "tables")
    assert [list(one.metrics.values()) for one in cloud.observations] == [
        [78.5],
        [27.25],
        [],
        [12.5],
    ]
    assert [one.name for one in parse_study(cloud.study, "cloud").parameters] == [
        "provider",
        "family",
        "kind",
        "vcpu",
        "nodes",
    ]
    last = cloud.observations[-1]
    assert last.config == {"provider": "C", "family": "C1", "kind": "C2", "vcpu": 1, "nodes": 4}
    assert last.context == {"task": "xgboost", "dataset": "one"}

    heffte = read_table("heffte_polaris", tmp_path / "tables").observations
    assert [list(one.metrics.values()) for one in heffte] == [[121.5], [], [99.0]]
    assert [one.config["threads"] for one in heffte] == [0.5, 0.125, 0.25]
    assert heffte[0].context == {"nodes": 2, "size": 256, "precision": "float"}
    assert heffte[0].config["reorder"] == "default"
    assert heffte[1].config["real_to_complex"] == "r2c_dir 2"


def test_an_empty_folder_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert public_tables.main([str(tmp_path), str(tmp_path / "tables")]) == 2
    assert "multi-cloud-configuration-dataset" in capsys.readouterr().err
