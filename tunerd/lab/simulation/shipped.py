"""The studies that ship with the simulated cluster, and the contexts that they are shown in."""

from importlib.resources import files

from tunerd.core.observation import Scalar

__all__ = ["DEMO_CONTEXTS", "STUDIES", "ads_study", "demo_contexts", "shipped_study"]

STUDIES = ("ads-fsdp", "llm-pretrain")

DEMO_CONTEXTS: dict[str, tuple[dict[str, Scalar], ...]] = {
    "ads-fsdp": (
        {"gpu": "H100", "n_gpus": 256, "dense_params": 4e9, "global_batch": 131072},
        {"gpu": "H100", "n_gpus": 256, "dense_params": 5e9, "global_batch": 98304},
    ),
    "llm-pretrain": (
        {
            "gpu": "H100",
            "n_gpus": 1024,
            "model_params": 175e9,
            "global_batch": 1536,
            "seq_len": 4096,
        },
        {
            "gpu": "H100",
            "n_gpus": 16384,
            "model_params": 175e9,
            "global_batch": 8192,
            "seq_len": 2048,
        },
    ),
}
"""Study name -> contexts that the demo and ``tunerd cluster`` run when none is given."""


def shipped_study(name: str) -> str:
    """Text of a shipped study file. Raises ``ValueError`` that lists the shipped ones."""
    if name not in STUDIES:
        raise ValueError(f"no study {name!r} ships with tunerd; there are {', '.join(STUDIES)}")
    return (files("tunerd.lab.simulation") / "studies" / f"{name}.toml").read_text(encoding="utf-8")


def demo_contexts(name: str) -> tuple[dict[str, Scalar], ...]:
    """Contexts of a study by its name or, as for ``ads-fsdp-24``, by the start of its name."""
    for known, contexts in DEMO_CONTEXTS.items():
        if name == known or name.startswith(f"{known}-"):
            return contexts
    return ()


def ads_study(layers: int) -> str:
    """The ads study with another number of layers: 3^layers x 65 x 9 configurations.

    Named ``ads-fsdp-<layers>``; its baseline is the shipped one, whose sharding is uniform.
    Raises ``ValueError`` for fewer than two layers.
    """
    if layers < 2:
        raise ValueError(f"layers: at least 2 are needed, not {layers}")
    text = shipped_study("ads-fsdp")
    for old, new in (
        ('name = "ads-fsdp"', f'name = "ads-fsdp-{layers}"'),
        ("repeat = 8", f"repeat = {layers}"),
    ):
        if text.count(old) != 1:
            raise ValueError(f"the shipped study no longer says {old!r} exactly once")
        text = text.replace(old, new)
    return text
