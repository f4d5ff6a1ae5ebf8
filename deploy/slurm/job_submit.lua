-- Slurm's job_submit/lua: beside slurm.conf, with tunerd.lua and tunerd_studies.lua. See docs/slurm.md.
-- Where you have a job_submit.lua of your own, take over the two lines about tunerd, and the call.

local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or "/etc/slurm/"
local ok, tunerd = pcall(dofile, folder .. "tunerd.lua")

function slurm_job_submit(job_desc, part_list, submit_uid)
  if ok then
    tunerd.submit(job_desc, submit_uid, folder .. "tunerd_studies.lua")
  else
    slurm.log_error("tunerd: jobs are submitted unchanged: %s", tostring(tunerd))
  end
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
