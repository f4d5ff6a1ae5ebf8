-- Slurm's jobcomp/lua: beside slurm.conf, with tunerd.lua and tunerd_studies.lua. See docs/slurm.md.

local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or "/etc/slurm/"
local ok, tunerd = pcall(dofile, folder .. "tunerd.lua")

function slurm_jobcomp_log_record(job_rec)
  if ok then
    tunerd.complete(job_rec, folder .. "tunerd_studies.lua")
  else
    slurm.log_error("tunerd: ends of jobs are not told: %s", tostring(tunerd))
  end
  return slurm.SUCCESS
end

return slurm.SUCCESS
