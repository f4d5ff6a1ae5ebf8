"""A scheduler in twenty lines: ask what to launch, launch it, report what came out.

python examples/scheduler.py 8         # eight jobs, in the folder in which `tunerd run` runs
"""

import sys
import time

from measure import CONTEXTS, HABIT, run_job

from tunerd.client import JobReporter, Recommendations, context_key

recommendations = Recommendations.follow_jsonl("tunerd-data/stream")
reporter = JobReporter.jsonl("tunerd-data/stream", source="example")
for number in range(int(sys.argv[1])):
    context = CONTEXTS[number % len(CONTEXTS)]
    key = context_key("neighbours", {"points": "int", "dims": "int"}, context)
    job_id = f"{time.time():.2f}"
    recommendations.catch_up()
    choice = recommendations.choose(key, job_id)
    config = choice.config if choice else HABIT
    status, metrics = run_job(context, config)
    reporter.report(
        study="neighbours",
        job_id=job_id,
        status=status,
        context=context,
        config=config,
        metrics=metrics,
        choice=choice,
    )
    told = " ".join(f"{name}={value}" for name, value in (context | config).items())
    speed = metrics.get("mpairs_per_s", status)
    print(f"{choice.kind if choice else 'habit':9} {told}  {speed}", flush=True)
