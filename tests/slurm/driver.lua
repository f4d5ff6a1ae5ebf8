-- Answers questions, one JSON a line, with what tunerd.lua says: see test_vectors.py.
local M = dofile(arg[1])
local state = M.new_state()

local function plain(value)
  if value == M.NULL then return nil end
  if type(value) ~= "table" then return value end
  if value.num then
    -- Lua 5.1 has no such integers: a context has them as texts.
    if value.int and math.abs(value.num) >= 2 ^ 53 then return value.raw end
    return value.num
  end
  if value.array then return value end
  local found = {}
  for name, inner in pairs(value.at) do found[name] = plain(inner) end
  return found
end

local function quoted(text) return text and (M.quoted(text) or '"not UTF-8"') or "null" end

for line in io.lines() do
  local asked = plain(M.parse(line))
  if asked.study then
    print(quoted(M.context_key(asked.study, asked.features, asked.context)))
  elseif asked.new then
    state = M.new_state()
    print("null")
  elseif asked.parse then
    print(M.parse(asked.parse) == nil and "false" or "true")
  else
    local choice, why = M.choose(state, asked.file, asked.key, asked.job, asked.attempt, asked.now)
    if choice then
      print(string.format('{"config": %s, "kind": %s, "recommendation_id": %s, "candidate_id": %s, "match": %s}',
        choice.config_raw, quoted(choice.kind), quoted(choice.recommendation_id),
        quoted(choice.candidate_id), quoted(choice.match)))
    else
      print(why and '{"why": ' .. quoted(why) .. "}" or "null")
    end
  end
  io.stdout:flush()
end
