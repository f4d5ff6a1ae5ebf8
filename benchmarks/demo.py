"""What the demo gains, over several seeds: against the baseline and against random search.

Runs ``tunerd demo`` as a newcomer does, once per seed, and reads its ``result.json``.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.kit import Bars, arguments, counted

SECONDS = 120.0


def main() -> int:
    """Run it."""
    parser = arguments(__doc__)
    parser.add_argument("--seeds", default="1,2,3", help="numbers, with commas between")
    parser.add_argument("--study", default="ads-fsdp")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")][: 1 if options.quick else None]
    bars = Bars("demo")
    over_baseline, over_random = [], []
    for seed in counted("demos", seeds):
        with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
            where = Path(folder) / "demo"
            command = [sys.executable, "-m", "tunerd", "demo", "--study", options.study]
            command += ["--seed", str(seed), "--folder", str(where)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            result = json.loads((where / "result.json").read_text())
        over_baseline.append(result["gain_over_baseline"])
        over_random.append(result["gain_over_random"])
        bars.say(f"seed {seed}: gain over the baseline", 100 * over_baseline[-1], "%")
        bars.say(f"seed {seed}: gain over random search", 100 * over_random[-1], "%")
        seconds = result["seconds"]
        bars.hold(f"seed {seed}: time", seconds, seconds < SECONDS, f"under {SECONDS:g} s", "s")
    for name, gains in (("baseline", over_baseline), ("random search", over_random)):
        mean = 100 * sum(gains) / len(gains)
        bars.hold(f"mean gain over the {name}", mean, mean > 0, "above 0 %", "%")
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
