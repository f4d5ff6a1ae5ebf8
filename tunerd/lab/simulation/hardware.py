"""Numbers of the machines that the simulated cluster is made of.

Peaks are the vendors' data sheets (dense, without sparsity); what software reaches of a peak is in
the ``*_EFFICIENCY`` constants, each with its source. A node has eight GPUs joined by NVLink, each
with a network card of its own (DGX A100, DGX H100, HGX H200 and B200 all do).
"""

from dataclasses import dataclass

__all__ = ["GIB", "GPUS", "GPUS_PER_NODE", "GpuSpec", "gpu_named"]

GIB = 2.0**30
GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One GPU and its links. Rates are per direction, in units of 1/s."""

    name: str
    bf16_flops: float
    fp8_flops: float | None
    """``None``: the hardware has no fp8; a job that asks for it fails."""
    hbm_bytes: float
    hbm_rate: float
    """Bytes per second to and from its own memory."""
    nvlink_rate: float
    """Bytes per second to the other GPUs of the node."""
    network_rate: float
    """Bytes per second of its network card."""
    host_rate: float
    """Bytes per second to the host's memory (PCIe x16)."""


GPUS = {
    # A100 80GB SXM: NVIDIA A100 data sheet; DGX A100: one HDR 200 Gb/s card per GPU; PCIe 4.
    "A100": GpuSpec("A100", 312e12, None, 80 * GIB, 2.04e12, 300e9, 25e9, 32e9),
    # H100 SXM5: NVIDIA H100 data sheet; DGX H100: one NDR 400 Gb/s card per GPU; PCIe 5.
    "H100": GpuSpec("H100", 989e12, 1979e12, 80 * GIB, 3.35e12, 450e9, 50e9, 64e9),
    # H200 SXM: an H100 with 141 GB of HBM3e.
    "H200": GpuSpec("H200", 989e12, 1979e12, 141e9, 4.8e12, 450e9, 50e9, 64e9),
    # B200: NVIDIA HGX B200 data sheet (180 GB usable); NVLink 5; the same network card as the H100.
    "B200": GpuSpec("B200", 2250e12, 4500e12, 180e9, 8.0e12, 900e9, 50e9, 64e9),
}


def gpu_named(name: object) -> GpuSpec:
    """The GPU of this name. Raises ``ValueError`` that lists the known ones."""
    gpu = GPUS.get(str(name))
    if gpu is None:
        known = ", ".join(GPUS)
        raise ValueError(f"gpu: {name!r} is not simulated; known are {known}")
    return gpu
