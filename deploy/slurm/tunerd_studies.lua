-- Which jobs tunerd tunes, and how: read by job_submit.lua and jobcomp.lua. See docs/slurm.md.
-- It is read anew when it changes. A mistake in it is in slurmctld's log, and jobs go on unchanged.

return {
  cluster = "cluster-a", -- where job ids are unique; the trainers' halves say the same
  file = "/var/lib/tunerd-subscribe/recommendations.jsonl", -- tunerd subscribe --file
  spool = "/var/lib/tunerd-subscribe/events.jsonl", -- tunerd subscribe --spool
  task_prolog = false, -- true where TaskProlog is installed: then a retry gets no candidate
  tell = false, -- true: sbatch says what was chosen

  studies = {
    {
      study = "compress",
      -- All of these patterns must be found: name, partition, account, comment, wckey, qos …
      match = { name = "^compress" },
      -- The study file's [context]. Values are constants, or functions of the job's description.
      features = { dataset = "category", cpus = "int" },
      context = {
        dataset = function(job) return job.environment.DATASET or "logs" end,
        cpus = function(job) return job.cpus_per_task or 1 end,
      },
      -- Parameters → variables that the script reads already. TUNERD_PARAM_LEVEL is set anyway.
      variables = { level = "LEVEL", threads = "THREADS" },
      -- What the script does without them.
      defaults = { level = 3, threads = 1 },
      -- The metric that is the seconds that the job ran. Leave it out where a trainer reports.
      elapsed = "elapsed_s",
    },
  },
}
