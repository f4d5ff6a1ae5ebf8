"""Texts of known programs that say nothing of how a run was configured, and what to do instead."""

import re

__all__ = ["advice_for"]

_REQUESTS = (
    "has a line for each request and not for each run. Write a line for each run into a CSV: its"
    " settings, and what its summary says ({summary})"
)
_ADVICE: tuple[tuple[str, str], ...] = (
    (r"timeStamp,elapsed,label,responseCode,(?:responseMessage|threadName|dataType|success"
     r"|failureMessage|bytes|sentBytes|grpThreads|allThreads|URL|Filename|Latency|Encoding"
     r"|SampleCount|ErrorCount|Hostname|IdleTime|Connect|,)+\r?\n",
     "is a log of JMeter: it " + _REQUESTS.format(summary="JMeter's aggregate report")),
    (r'\{(?:"metric": ?"[^"]{1,100}", ?)?"type": ?"(?:Metric|Point)", ?"(?:data|metric)"',
     "is a log of k6: it " + _REQUESTS.format(summary="k6 run --summary-export")),
    (r'\{"Event":"SparkListener',
     "is an event log of Spark: it has a line for each task and stage of one application. Write a"
     " line for each application into a CSV: its settings and its duration (Spark's history server"
     " has them under /api/v1/applications)"),
    (r"(?:> [^\n]*\n\s*)?[^\n]*\n\s*(?:Min\. +:|Length *:)",
     "is what R's summary() prints of a table. Write the table itself: write.csv(runs,"
     ' "runs.csv")'),
    (r"[\w. -]+: \(g=\d+\): rw=",
     "is what fio prints for people; fio --output-format=json is read as it is"),
    (r"\d;fio-\d",
     "is fio's terse output, which does not say how a job was configured; fio"
     " --output-format=json does, and is read as it is"),
    (r'\{"i": ?\[\[',
     "is a log of TVM's auto-scheduler: it has schedules, and no settings that could be tuned."
     " Write what you set yourself and the best time of each run into a CSV"),
    (r'\{(?:"Time": ?"[^"]{1,40}", ?)?"Action": ?"(?:start|run|output|pass|bench)", ?"Package"',
     "is the output of go test -json; that of go test -bench without it is read as it is"),
    (r"(?:# started on [^\n]*\n\s*)?[\d.]+([,;])(?:msec|[num]?s|Joules|[KMG]iB|Bytes|C)?\1"
     r"[\w:./-]+\1\d+\1\d{1,3}\.\d\d\1[^,;\n]*\1",
     "is what perf stat -x writes, a line for each counter and no names. Write a line for each run"
     " into a CSV: its settings, and its counters under their names"),
    (r"Type,Name,Request Count,Failure Count,|Timestamp,User Count,Type,Name,",
     "is what Locust writes of one run, with a row for each address or moment. Write a line for"
     " each run into a CSV: its settings, and its line Aggregated"),
    (r"Linux \S+ \([^()\n]*\)[ \t]+\S+[ \t]+_\w+_[ \t]+\(\d+ CPU\)",
     "is a series of sysstat (sar, iostat): it has a row for each moment and not for each run."
     " Write a line for each run into a CSV: its settings, and what the series were in the mean"),
    (r"(?:\s*Accounting information about jobs that are:[^\0]{0,1000}?-{20,}\s*)SUMMARY:",
     "is LSF's summary of all jobs; bacct -l has each, and is read as it is"),
    (r"\s*JOBID +PARTITION +NAME +USER +ST +TIME ",
     "is what Slurm's squeue says of jobs that have not ended; sacct says how they did"),
    (r"\{\|[^\n]*\n|\^ [^\n|]+ \^[ \t]*\r?\n\|",
     "is a table in the markup of a wiki. Save the wiki's page, as a browser shows it, in HTML"),
    (r"<\?xml[^>]*>\s*<\?mso-application[^>]*>",
     "is a workbook of Excel in XML. Save its sheet as CSV"),
    (r":::MLL",
     "is MLPerf's log of one run. Write a line for each run into a CSV: its settings, and the"
     " time from run_start to run_stop"),
    (r"(?:(?:goos|goarch|pkg|cpu): [^\n]*\n)*"
     r"(?:name {2,}(?:old \S+/op {2,}new |(?:time|allocs?)/op *\r?\n)|\s+│\s+\S+\s+│)",
     "is benchstat's summary, which has a row for each benchmark and a column for each file; the"
     " outputs of go test -bench that it was made of, put together, are read as they are"),
    (r'(?:"?Time"?|"?Date"?|"?timestamp"?)'
     r'(?:[,;\t][^\n{},;\t]*\{(?:"")?\w{1,100}(?:"")?[=:][^\n{}]*\}[^\n{},;\t]*)+\r?\n|"?Series"?[,;]"?Time"?[,;]"?Value"?\s',
     "is a series of Prometheus or Grafana: it has a row for each moment and not for each run."
     " Write a line for each run into a CSV: its settings, and what the series were in the mean"),
)  # fmt: skip
_PATTERNS = [(re.compile(pattern), advice) for pattern, advice in _ADVICE]


def advice_for(start: str) -> str:
    """What is wrong with a text of which this is the beginning, and what to do; "" for others."""
    return next((advice for pattern, advice in _PATTERNS if pattern.match(start)), "")
