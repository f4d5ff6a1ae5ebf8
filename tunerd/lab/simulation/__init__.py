"""A simulated cluster for demos, tests and benchmarks.

``fsdp`` and ``llm`` are cost models on the links and machines of ``collectives`` and ``hardware``;
``simulator`` turns them into jobs with noise and troubles; ``sweep`` has what tunerd is compared
with; ``cluster`` launches jobs, follows recommendations and reports, as any scheduler would.
"""
