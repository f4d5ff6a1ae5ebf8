"""Words of names: what columns of old jobs tend to be called, in training, serving, HPC, Spark,
databases and compilers.

Phrases are in the form that :func:`tunerd.lab.tables.column_names.words` gives names: lower case,
singular, without "number of". Weights are in the units in which :mod:`tunerd.lab.tables.guess`
weighs evidence: 1 leans, 2 is likely, 3 and more is hard to overrule. Nothing here is about any one
table; what the names leave open, the data decides.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "CONTEXT",
    "COUNTED",
    "DEVICES",
    "ENDS_IN_S",
    "EXPANDED",
    "KEPT",
    "LABELS",
    "LASTS",
    "MEASURES",
    "MISHAPS",
    "MONEY",
    "OUTCOMES",
    "PARAMETER",
    "QUALIFIERS",
    "QUALITY",
    "QUANTITIES",
    "SECTIONS",
    "SENSORS",
    "SHOWN",
    "SPENT",
    "STATISTICS",
    "STATUS",
    "TAKEN",
    "THOUSANDS",
    "TIMES",
    "TIME_PARTS",
    "TIME_WORDS",
    "TWISTS",
    "UNITS",
    "USERS",
    "VAGUE",
    "WHOLE_TIMES",
    "WISHES",
    "WORDS",
    "Class",
    "Direction",
    "MetricPhrase",
    "word_set",
]

Class = Literal["context", "parameter", "measured", "status", "label"]
"""What a name can say that a column is."""
Direction = Literal["maximize", "minimize"]
"""Which way better is."""


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def _by_phrase(text: str) -> dict[tuple[str, ...], str]:
    """What each phrase means: ``meaning: phrase, phrase``, by lines or semicolons."""
    meanings: dict[tuple[str, ...], str] = {}
    for part in re.split("[\n;]", text.strip()):
        meaning, _, phrases = part.strip().partition(":")
        meanings |= {tuple(phrase.split()): meaning for phrase in phrases.split(",")}
    return meanings


def _by_word(text: str) -> dict[str, str]:
    """The same of single words, with spaces between them."""
    return {word: meaning for words, meaning in _by_phrase(text).items() for word in words}


def _weighed(text: str) -> dict[tuple[str, ...], float]:
    """``weight: phrase, phrase`` a line."""
    return {phrase: float(weight) for phrase, weight in _by_phrase(text).items()}


CONTEXT = _weighed("""
3: model, model name, model size, model type, arch, architecture, network architecture
3: application, app, workload, benchmark, program, job type, task, family, suite, function
3: kernel, kernel name, dataset, data set, set size, corpus, input, input size, input file
3: problem, problem size, problem type, query, query id, scale factor, schema, collection, graph
3: graph name, matrix, matrix name, scenario, gpu type, gpu model, gpu name, accelerator
3: accelerator type, accelerator name, device name, hardware, cpu model, cpu type, processor
3: chip, soc, board, system, platform, cluster, machine, region, site, datacenter, data center
3: gpu, device, accelerator count, world size, gpu count, seq len, sequence len, seqlen
3: context len, input len, output len, prompt len, input token, output token, hidden, hidden size
3: hidden dim, embedding dim, embed dim, d model, ffn, ffn dim, intermediate size, layer, head
3: attention head, kv head, expert, vocab, vocab size, vocabulary size, param, model param
3: user, concurrent user, virtual user, vu
3: parameter count, dense param, arrival rate, request rate, offered load, load level, target qps
3: user count, client, resolution, image size, img size, grid size, mesh size, domain size, atom
3: particle, cell, element, dof, degree freedom, unknown, nnz, nonzero, row, col, column, record
3: document, edge, vertex, data size, dataset size, file size, table size, database size
3: graph size, training set size, sample count, feature count, class count, image height
3: image width, matrix size, dim m, dim n, dim k, local problem size, global problem size
3: training size, train size, test size, prompt token, generated token, gen len, max input len
3: max output len, isl, osl, hidden layer, max seq len, max model len, max sequence len
2: cpu, node type, node gpu, gpu memory, device memory, hbm, vram size, interconnect, fabric
2: cuda version, driver version, version, release, commit, queue, zone, os, operating system
2: kernel version, framework, framework version, library, library version, software, stack
2: language, tenant, customer, instance count, tokens total, height, width, depth dim, m, n, k
2: nx, ny, nz, lx, ly, lz, dim, dimension, epoch, total step, train step, training token
2: step count, timestep, time step, stencil, channel in, channel out, in channel, out channel
2: category, domain, backbone, encoder, decoder type, read ratio, write ratio, read write ratio
2: skew, zipf, key size, value size, message size, msg size, object size, payload, payload size
2: workload type, mix, transaction mix, density, sparsity, hbm gib, gpu gib, link gbps
2: gpu memory gib, device count, chip count, chip type, tpu, gpu arch, iteration, collective
2: target, pattern, access pattern, io pattern, molecule, operation, operator, producer, consumer
3: model filename, model file, model path, prompt
3: budget, fidelity, rung, bracket, resource budget, training budget
2: test, test name, trace
2: topic, subscriber, mesh, deck, testcase, geometry, case, instrument, workload mix
2: accelerator per node, partition total
1: mpi rank, mpi process, process, core count, core, socket, server, host count, host type
1: bandwidth, gpu bandwidth, memory bandwidth, tflops peak, peak tflops, memory gib, memory size
1: concurrency, concurrent request, concurrent user, request, connection, session, ram, disk type
1: storage type, data, sequence, group, name, kind, variant, type, generation, precision model
1: length, len, degree distribution, alpha, price
2.5: node, node count
1.5: gpu per node, device per node, core per node, core per socket, partition
0.5: global batch, global batch size
""")

PARAMETER = _weighed("""
4: tp, pp, dp, cp, ep, vpp, tensor parallel, pipeline parallel, data parallel, expert parallel
4: context parallel, sequence parallel, model parallel, tensor model parallel, virtual pipeline
4: pipeline model parallel, parallel size, parallel degree, parallelism, micro batch
4: micro batch size, microbatch, minibatch, mini batch, batch size, local batch, local batch size
4: batch per gpu, per gpu batch, per device batch, gradient accumulation, accumulation step
4: gradient accumulation step, zero, zero stage, zero1, zero2, zero3, sharding, shard
4: sharding strategy, fsdp, hsdp, offload, activation offload, optimizer offload, cpu offload
4: checkpointing, activation checkpoint, activation checkpointing, gradient checkpointing
4: recompute, recomputation, remat, rematerialization, precision, dtype, amp, fp8, bf16, fp16
4: quantization, kv cache dtype, mixed precision, learning rate, lr, weight decay, momentum
4: dropout, warmup, optimizer, lr schedule, interleave, interleaving, pp interleave, overlap
4: dp overlap, tp overlap, comm overlap, bucket size, prefetch, prefetch factor, worker
4: dataloader worker, loader worker, thread, omp thread, omp num thread, process per node
4: rank per node, task per node, tasks per node, ppn, cpu per task, thread per process, affinity
4: bind, binding, pinning, schedule, chunk, chunk size, tile, tile size, tile x, tile y, tiling
4: block size, block x, block y, block z, block dim, thread block, work group, workgroup, unroll
4: unroll factor, loop unroll, vectorize, vectorization, vector width, vector size, opt level
4: optimization level, flag, compiler flag, inline, fusion, fuse, fused, compile, jit, cuda graph
4: flash attention, attention backend, attention implementation, attn impl, sync mode
4: synchronization, staleness, compression, codec, compress, algorithm, algo, protocol, nccl
4: nccl algo, nccl proto, channel count, executor, executor core, executor memory
4: executor instance, driver memory, driver core, shuffle partition, memory fraction
4: storage fraction, serializer, broadcast threshold, locality wait, default parallelism
4: shared buffer, work mem, work memory, effective cache size, maintenance work memory
4: wal buffer, max wal size, checkpoint completion target, checkpoint timeout, max connection
4: random page cost, buffer pool, buffer pool size, innodb, log file size, flush, flush method
4: cache size, page size, parallel worker, max parallel worker, effective io concurrency
4: autovacuum, heap, heap size, gc, gc algorithm, jvm heap, vm type, instance type, machine type
4: instance family, vm size, vm, replica, ps count, parameter server, max seq, max batch token
4: max batched token, max num seq, batched token, gpu memory utilization, gpu utilization limit
4: swap space, speculative, speculative token, chunked prefill, prefix caching, kv cache
4: kv block size, huge page, hugepage, numa, governor, gpu frequency, cpu frequency, frequency
4: clock, core clock, memory clock, power cap, power limit, turbo, smt, hyperthread
4: hyperthreading, stripe, stripe count, stripe size, collective buffering, cb node, aggregator
4: io aggregator, alignment, preconditioner, smoother, coarsening, process grid, px, py, pz, nb
4: broadcast, bcast, queue depth, io depth, iodepth, linger, batch timeout, ack, fetch size
4: buffer size, buffer memory, policy, strategy, scheme, placement policy, hbm reserved
4: gradient compression, communication backend, comm backend, backend, split size, loss scale
4: pipeline stage, dispatch, load balance, max token, beam size, sharding factor, shard count
4: replication factor, reducer, mapper, map memory, reduce memory, sort memory, container memory
4: container core, speculation, shuffle, spark, yarn, mapreduce, hive, async, cache policy
4: unrolling, interchange, padding, layout, data layout, loop order, local memory, shared memory
4: gpu layer, subsample, max depth, estimator
4: decomp, decomposition, decomposition method
4: power budget, memory budget, token budget, max gradient norm, clip gradient norm
4: use shared memory, bucket, fanout, compaction, memtable, bloom, block cache, write buffer
4: write buffer size, synchronous commit
3: batch, cache, buffer, memory limit, cpu limit, limit, threshold, interval, timeout, ratio
3: fraction, factor, depth, mode, granularity, enable, enabled, disable, disabled, use, with
3: allow, tolerance, step per epoch, layer per stage, pool size, pool, window size, priority
3: share, quota, gpu per job, gpu per task, per node, per task, per worker, allocation, bind to
3: map by, tolerance level, option, variant choice, impl, implementation, method, technique
3: transport, num stage, num warp, warp, block m, block n, block k, group m, simd, register
3: maxreg, occupancy target, epsilon, beta, gamma, temperature setting, acceleration
2: split, stage, router, order, level, panel, draft, eviction, scheduler, solver, ring, weight
2: stride, vcpu, memory per node, sync, lock, isolation, isolation level, consistency, engine
2: index, index type, format, file format, storage format, encoding, bit, group size, pack
2: packing, checkpoint, checkpoint interval, save interval, log interval, cp algo
2: broadcast algorithm
4: cycle time, fusion threshold, tensor fusion threshold, fusion buffer threshold
1: max, min, default, size limit
1.5: partition count
""")


@dataclass(frozen=True, slots=True)
class MetricPhrase:
    """Something that is measured."""

    weight: float
    """How much its name says that it is measured."""
    rank: float
    """How likely it is what people want better; the largest wins."""
    goal: Direction | None
    guard: bool = False
    """Whether people set bounds to it."""


def _measures(text: str) -> dict[tuple[str, ...], MetricPhrase]:
    """``weight rank goal[!]: phrase, phrase`` a line; ! for what makes a guard."""
    goals: dict[str, Direction | None] = {"max": "maximize", "min": "minimize", "any": None}
    measures: dict[tuple[str, ...], MetricPhrase] = {}
    for phrase, head in _by_phrase(text).items():
        weight, rank, goal = head.split()
        better = goals[goal.rstrip("!")]
        measures[phrase] = MetricPhrase(float(weight), float(rank), better, goal[-1] == "!")
    return measures


MEASURES = _measures("""
4 9.5 max: goodput
4 9 max: throughput, per s, per min, per hour, per day, qps, tps, rps, iops, fps, img s, tok s
4 9 max: ops, wps, sps, tgs, mpps, kpps, mips, gops, tops, gbps, mbps, kbps, bps
4 9 max: nopm, tpmc, tpm, qph, qphh, nps, lups, mteps, hashrate, hash rate
4 8 max: tflops per gpu, gflops per s, tflops per s, teps, gteps, mlups, glups, gups, gcups
2.5 8 max: gflops, tflops, mflops, pflops, flops, speed, performance
4 6.5 max: speedup
4 6 any: s per, ms per, us per, ns per
3 10 min: fun
3 10 any: objective, objective value, figure merit, fom
3 10 max: reward, fitness, ep reward, episode reward, episode return, ep return
3 5 any: ep len, episode len
3 5 max: rating
3 7.6 any: score, func val, target value, target
3 6 any: result, response, outcome, measurement, y
3 7 min: step time, iteration time, iter time, execution time, run time, runtime, wall time
3 7 min: walltime, wall clock, wallclock, elapsed, elapsed time, duration, makespan
3 7 min: completion time, jct
3 7 min: turnaround, training time, train time, query time, solve time, solution time
3 7.1 min: real time
3 7 min: kernel time, response time, batch time, epoch time, time per step
3 7 min: time per iteration, time to solution, inference time
3 7.3 min: total time
3 6.8 min!: latency, mean latency, average latency, delay
2.5 6.9 min: time, time to, wall
2.5 5 min: cycle, tick, code size, binary size, object code size, size reduction
2.5 5 min: instruction count
4 5.9 min!: ttft, tpot, itl, tbt, time first token, time per output token, first token
3 3 min: sync time, comm time, communication time, compute time, computation time, gc time
3 3 min: queue time, wait time, waiting time, load time, setup time, init time, startup time
3 3 min: compile time, io time, compilation time, cpu time, forward time, backward time, bubble
3 1 min: usr cpu, sys cpu, user cpu, system cpu
3 5 min: clock time, running time
2.5 6.9 min: real
3 1 any: gradient norm, nan iteration, hog factor
3 1 min: total gc, gc old, gc young, cpu user, cpu sys, cpu system, cpu iowait, cpu idle
3 4 min: write amp, read amp, space amp, w amp, r amp
3 4 min: write amplification, read amplification, space amplification
3 3 min: utime, stime
3 3 min: idle time, overhead, stall, warmup time, user time, sys time, scheduling delay, time std
3 3 min: transfer time, h2d, d2h, slowdown, prefetch wait, data wait, lock wait
4 5.5 max: mfu, hfu
2.5 4 max: utilization, occupancy, efficiency, eff, hit rate, hit ratio, gpu use
2.5 4 max: gpu usage
2.5 4 any: usage, cpu use
2.5 4 min: disk usage, swap usage, storage usage
4 9 max: sypd, simulated year per day
4 4 max: instruction per cycle, insn per cycle, ipc
3 7 max: wns, tns, negative slack
4 5 min: chsy
2 7 max: bandwidth, busbw, algbw, bus bandwidth, bandwidth gb s
2.5 5.5 min: cost, dollar, usd, expense
3 5 max: compression ratio
2.5 4 max: availability
3 6 min!: rtt, round trip, round trip time
1.5 6 min!: jitter
2.5 4 min!: lag, consumer lag
3 5.2 min: energy, joule, kwh, k wh, edp, energy delay product, carbon, co2
3 5.2 min: emission, emission rate
2 3.5 min!: power, watt, average power, mean power, power draw
2 0.5 min!: temperature
3.5 1 min!: peak memory, max memory, memory used, memory usage, memory peak, memory allocated
3.5 1 min!: peak rss, max memory allocated, max memory reserved, memory reserved
3.5 1 min!: memory consumption, peak vram, memory use
3.5 1 any: peak vmem, vmem, max vms, max uss, max pss, rchar, wchar, pct cpu, cpu this job got
2.5 1 min!: rss, maxrss, vram, memory footprint, peak
1 1 min!: memory
3.5 3 max!: accuracy, f1, auc, bleu, rouge, top1, top5, recall, quality, map score, ndcg
3.5 3 max!: precision at, psnr, ssim, vmaf, iou, dice, mean iou, win rate, elo
3.5 3 min!: loss, perplexity, ppl, rmse, mse, mae, residual, error, error rate, failure rate
3.5 3 min!: wer, cer, fid, word error rate, nll, cross entropy, bit per byte, lpips, mape
3.5 3 min!: slo violation, mean squared error
3.5 3 max: m ap, m ap50, m ap75, ap50, mrr, r2, dcg
3 3 max: snr, sinr, pass rate, acceptance rate, accept rate, silhouette
3 3 min: fpr, fnr, false positive rate, misclassification, tardiness, lateness, mttr, downtime
3.5 3 max: mcc, kappa, cohen kappa, matthews corrcoef
3.5 3 max: mean precision, precision score, auroc, exact match
3.5 3 min: brier, ece, edit distance
3 6.6 min: regret, optimality gap, wirelength
3 3 min: imbalance
3.5 3 max: log likelihood, loglikelihood, loglik, elbo, evidence lower bound, log evidence, log prob
3.5 3 min: bic, aic
3.5 3 max: val score, validation score, test score, cv score
3.5 3 max: gate fidelity, state fidelity, process fidelity, circuit fidelity
1.5 3 max: fidelity
2.5 1 min: miss, cache miss, fault, page fault, spill, retry, eviction, preemption, instruction
2.5 1 min: mishap, stalled, retransmit, drop rate, context switch, alloc per op, b per op
2.5 1 any: read byte, written byte, byte read, byte written, shuffle read, shuffle write, packet
2.5 1 any: hit, branch, row in, row out, record in, record out, byte in, byte out, message in
2.5 1 any: message out, row read, row written, row returned, row scanned, record read
2.5 1 any: record written, event in, event out, packet in, packet out
1 1 any: iteration, rate, value, output, used, allocated, actual
1 1 min: cpi
""")
"""By phrase. What is a part of something, or its spread, ranks low."""

QUALITY = word_set("""
    accuracy f1 auc bleu rouge top1 top5 recall ndcg loss perplexity ppl rmse mse mae wer cer fid
    likelihood loglikelihood loglik elbo
    squared r2 dcg fidelity ap ap50 ap75 mrr val validation test cv
""")
"""How good what was trained is. Beside it, a time or a speed may not be what is tuned for."""
STATISTICS = word_set("""
    std stderr variance ci ci95 ci99 iqr mad median percentile quantile p5 p10 p25 p50 p75 p90 p95
    p99 p999 cv skewness kurtosis rse
""")
"""What nobody chooses: it is computed of many measurements."""
SUMMARIES = word_set("""
    default minimum maximum mean average median std count min max avg unit type 25% 50% 75%
""")
"""Names of columns that are of no run: of a description of settings, or of a summary of others."""
OUTCOMES = word_set("""
    completed successful succeeded served processed dropped rejected retried generated evicted
    preempted maxrss averss rss consumed used utilized observed measured achieved actual allocated
""")
"""What became of something, counted."""
MISHAPS = word_set("failed failure skipped ko mishap")
"""The same, unless it is the most that is put up with."""
QUANTITIES = word_set("""
    power watt memory utilization temperature energy current voltage occupancy usage vram latency
    throughput bandwidth duration ttft tpot itl reward
""")
DEVICES = word_set("gpu cpu device accelerator tpu npu")
SENSORS = word_set("utilization temperature temp fan")
"""What a sensor of one of :data:`DEVICES` says. A memory utilization may be set."""
TAKEN = word_set("mean average peak max draw drawn")
"""Beside one of :data:`QUANTITIES`: a mean power was taken by somebody."""
WISHES = word_set("""
    limit cap target budget slo sla threshold requested quota init initial initializer noise
    weight prior param allowed setting configured bound goal sigma reserve reserved dropout
""")
"""Who says so wants it or sets it: a power cap, an initial std."""

QUALIFIERS = {
    word: float(rank)
    for word, rank in _by_word("""
-20: std variance cv ci stderr skewness kurtosis ci95 ci99 iqr mad
-1.5: p50 p75 p90 p95 p99 p999 percentile tail
0.1: median mean
-3: pct fraction share
-1: min max first last initial final warm cold
""").items()
}
"""What a word beside a measure does to its rank."""

STATUS = _weighed("""
5: exit value, exitval, exit val
5: status, stat, state, exit code, exit status, return code, job state, job status, exitcode
5: feasible
5: success, succeeded, successful, valid, failed, failure, crashed, crash, oom, out memory
5: run status, run state, final state, final status, is successful, job succeeded
4: is valid, is feasible, ok, completed, passed, correct, error code, is oom, timed out, ran
4: runnable
""")

TIMES = {
    word: int(rank)
    for word, rank in _by_word("""
9: end ended finish finished completed completion stop
7: timestamp logged recorded measured updated
6: datetime date ts when
5: time day seen
4: at created epoch
3: start started begin
2: eligible submit submitted queued
""").items()
}
"""How well the word says that it is the time at which a job finished."""

USERS = {"user", "username", "owner", "submitter", "author"}

LABELS = _weighed("""
6: id, uid, uuid, guid, hash, sha, seed, random seed, random state, hostname, node list, nodelist
6: seed transpiler, rng, rng state, generation method, generation node
6: node name, cluster id, proc id
6: ip, url, path, log file, comment, note, reason, message, error message, description, email
6: pid, ppid, tid, process id, thread id, host name, host ip, node ip, ip address, port, uri, link
6: logdir, log dir, log path, output dir, output path, working dir, work dir, workdir, cwd
6: wandb dir
6: checkpoint path, checkpoint dir, file path, filepath, session id, request id, user id, mac
6: cmdline, command line, run name, job name, serial, git, git commit, checksum, username, sha256
6: uhrzeit, time of day, md5, index level, unnamed, config hash
5: sla met, slo met, within sla, within slo, deadline met, target met
5: trial index, trial number, arm name
5: replication, trial, repeat, repetition, rep, replicate, fold, dir, directory, tag, label
5: sweep, experiment, experiment name, exp, run, line, account, project, command, cmd, script
5: filename, file name, placement, source, provenance, attempt, user, year, month, weekday
5: remark, link, figure, paper, trace, error type, owner, submitter, reference, citation, doi
5: notes text, column
3: commit, host, file, topology, phase, error, data source
""")
"""What says nothing about how a job was configured, or says it in a form that nobody can use."""

EXPANDED = _by_word("""
n: num number nr cnt count no; s: sec second; ms: msec millis millisecond; us: usec microsecond
ns: nsec nanosecond; hour: hr hour; len: length; std: std stdev stddev sd stdv; mean: avg average
median: med; neg: negative; min: minimum fastest; max: maximum slowest
batch size: bsz bs batchsize; gradient accumulation: gas gradaccum; process: proc pe ntasks
iteration: iter it; micro batch size: mbs; global batch size: gbs; micro batch: microbatches
seq len: seqlen; context: ctx; memory: mem; utilization: util; checkpoint: ckpt chkpt
checkpointing: ckpting; activation: act; gradient: grad; accumulation: accum; accuracy: acc
precision: prec; reward: rew; return: ret; throughput: tput thpt thrpt thruput xput
performance: perf; quantization: quant; frequency: freq; bandwidth: bw; latency: lat
execution: exec; attention: attn; pct: percent; cpu: cpus ncpus; gpu: gpus ngpus; tpu: tpus
param: params; dataloader: dl; layer: lyr; hidden: hid; embedding: emb; ffn: ffw; time: zeit
token: toks tok; image: imgs img; mishap: timeouts
""")
"""What abbreviations stand for."""
ENDS_IN_S = word_set("""
    ops fps qps tps rps iops ips pps flops gflops tflops mflops pflops ms us ns bs gbs mbs os
    gas bus axis loss status class address radius bias process access success less always mlups
    gups gbps mbps kbps bps wps sps tgs mpps kpps mips gops tops
    glups gteps teps gcups sms rss maxrss fs ps h2d alias basis analysis https dss ssds
""")
"""Words that end in s in the singular."""
COUNTED = word_set("""
    gpu node proc rank thread core worker layer head task cpu process expert socket replica
    param executor device host channel row col block tile warp stage iteration request
""")
"""What an ``n`` or ``num`` in front of it counts."""
VAGUE = word_set("size type name value kind mode degree factor strategy setting level used")
"""Last words that say less than the one before."""

_SECTIONS: dict[Class, str] = {
    "parameter": """
        config cfg conf configuration args arg param params parameters hparams knobs flags knob
        hyperparameters tunable tunables tunedhyperparameters parameterassignments assignments
    """,
    "context": "context ctx workload",
    "measured": """
        metric metrics result results summary output outputs measurement measurements monitoring
        system timing timings
    """,
    "label": "sys label labels tag tags meta metadata info",
}
SECTIONS = {word: kind for kind, text in _SECTIONS.items() for word in text.split()}
"""What records of other tools call the parts of a run: ``params.lr``, ``metrics/loss``."""

WHOLE_TIMES = word_set("total epoch step iteration wall elapsed run e2e makespan")
TIME_PARTS = word_set("""
    setup init startup data dataloader load loading forward backward fwd bwd optimizer comm
    communication sync io gc h2d d2h warmup wait queue compile save checkpoint checkpointing
    preprocess validation val eval allreduce stall idle overhead
""")
TIME_WORDS = {"time", "duration", "latency", "delay", "elapsed", "slack"}
MONEY = {"usd", "dollar", "eur", "cost", "price"}
_MIN: Direction = "minimize"
_MAX: Direction = "maximize"
TWISTS: tuple[tuple[frozenset[str], Mapping[str, Direction], str], ...] = (
    (word_set("improvement gain saving saved reduction"), {_MIN: _MAX, _MAX: _MAX},
     "it says how much better something became"),
    (word_set("increase regression"), {_MIN: _MIN, _MAX: _MAX}, "it says how something changed"),
    (word_set("drop lost unused wasted waste missed failed deficit gap shortfall penalty decline"
              " decrease degradation"), {_MAX: _MIN}, "it says what was lost"),
    (word_set("free available remaining headroom spare"), {_MIN: _MAX}, "it says what was left"),
    (word_set("inverse reciprocal inv"), {_MIN: _MAX, _MAX: _MIN}, "it says one divided by it"),
)  # fmt: skip
"""Words that turn round what is better of a quantity, by which way it was."""
LASTS = word_set("uptime mtbf mttf lifetime life survival endurance autonomy")
SPENT = word_set("""
    epoch step iteration hour minute second day time sample token round trial evaluation
""")
KEPT = word_set("under within in meeting met attainment")
UNITS = {
    "ms": "ms", "us": "µs", "ns": "ns", "s": "s", "min": "min", "minute": "min", "hour": "h",
    "gib": "GiB", "mib": "MiB", "kib": "KiB", "gb": "GB", "mb": "MB", "kb": "kB", "tb": "TB",
    "byte": "B", "pct": "%", "watt": "W", "w": "W", "kwh": "kWh", "joule": "J", "j": "J",
    "usd": "USD", "dollar": "USD", "eur": "EUR", "gflops": "GFLOP/s", "tflops": "TFLOP/s",
    "pflops": "PFLOP/s", "mflops": "MFLOP/s", "qps": "queries/s", "tps": "transactions/s",
    "rps": "requests/s", "iops": "operations/s", "fps": "frames/s", "gbps": "Gbit/s",
    "mbps": "Mbit/s", "tgs": "tokens/s/GPU", "wps": "words/s",
    "cycle": "cycles", "ghz": "GHz", "mhz": "MHz",
}  # fmt: skip
THOUSANDS = {"k": "k ", "kilo": "k ", "thousand": "k ", "million": "M "}
SHOWN = {"gpu": "GPU", "cpu": "CPU", "tpu": "TPU", "tok": "token"}
WORDS = (
    frozenset(
        word
        for table in (CONTEXT, PARAMETER, MEASURES, STATUS, LABELS)
        for phrase in table
        for word in phrase
    )
    | frozenset(TIMES)
    | word_set("time size count rate type name mode limit number use enable max min mpi omp")
)
"""Of which names are made."""
