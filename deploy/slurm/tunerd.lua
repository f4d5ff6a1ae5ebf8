-- What Slurm's plugins need of tunerd: choose a job's configuration from a local file, and say how
-- the job ended in another. Lua 5.1 to 5.4, no libraries, no network. See docs/slurm.md.
--
-- It runs inside slurmctld, under its locks. So nothing here may raise, wait or take long: every
-- entry point is a pcall with a bound on instructions, every read has a bound on bytes, and
-- whatever is wrong ends in a line of slurmctld's log and a job that is submitted unchanged.
--
-- It chooses as tunerd.client.RecommendationFile does; tests/slurm/test_vectors.py holds the two
-- together.

local M = {}

M.SORTED_LINE = '{"schema":"tunerd.sorted/1"}\n'
M.SCHEMA = "tunerd.recommendation/1"
M.PLAN_SCHEMA = "tunerd.plan/1"
M.PLAN_KEY = "plan:"
M.MOST_WANTED = 100
M.MOST_LINE = 512 * 1024 -- bytes of one recommendation
M.MOST_READ = 4 * 1024 * 1024 -- bytes of the file that one choice reads
M.MOST_STEPS = 5 * 1000 * 1000 -- Lua instructions of one call, a tenth of a second
M.MOST_RECORD = 32 * 1024 -- bytes that are kept with a job
M.MOST_KNOWN = 10000 -- contexts whose revisions are remembered
M.MOST_PENDING = 1000 -- events that wait in memory while the spool cannot be written
M.SAY_EVERY_S = 60 -- the same complaint

local floor, byte, char = math.floor, string.byte, string.char
local compile = loadstring or load -- luacheck: ignore
local NULL = {}
M.NULL = NULL

-- ## Texts ----------------------------------------------------------------------------------------

-- Order by bytes. `<` follows the locale.
local function less(a, b)
  local n = math.min(#a, #b)
  for i = 1, n do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- Length of the UTF-8 character at i, and its code point; nil where there is none.
local function utf8_at(s, i)
  local b = byte(s, i)
  if b < 0x80 then return 1, b end
  local n, low, code
  if b >= 0xC2 and b < 0xE0 then n, low, code = 2, 0x80, b - 0xC0
  elseif b >= 0xE0 and b < 0xF0 then n, low, code = 3, 0x800, b - 0xE0
  elseif b >= 0xF0 and b < 0xF5 then n, low, code = 4, 0x10000, b - 0xF0
  else return nil end
  for k = 1, n - 1 do
    local c = byte(s, i + k)
    if not c or c < 0x80 or c > 0xBF then return nil end
    code = code * 64 + c - 0x80
  end
  if code < low or code > 0x10FFFF or (code >= 0xD800 and code < 0xE000) then return nil end
  return n, code
end

local function is_utf8(s)
  if not s:find("[\128-\255]") then return true end
  local i = 1
  while i <= #s do
    local n = utf8_at(s, i)
    if not n then return false end
    i = i + n
  end
  return true
end

local function utf8_char(code)
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xC0 + floor(code / 64), 0x80 + code % 64) end
  if code < 0x10000 then
    return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
  end
  return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64,
    0x80 + floor(code / 64) % 64, 0x80 + code % 64)
end

-- What Python's str.strip takes away. Latin-1 and other spaces are UTF-8 here.
local SPACES = { ["\194\133"] = true, ["\194\160"] = true, ["\225\154\128"] = true,
  ["\226\128\168"] = true, ["\226\128\169"] = true, ["\226\128\175"] = true,
  ["\226\129\159"] = true, ["\227\128\128"] = true }
for i = 128, 138 do SPACES["\226\128" .. char(i)] = true end

local function strip(s)
  local before
  repeat
    before = s
    s = s:gsub("^[\t-\r\28-\31 ]+", ""):gsub("[\t-\r\28-\31 ]+$", "")
    for _, n in ipairs({ 2, 3 }) do
      if SPACES[s:sub(1, n)] then s = s:sub(n + 1) end
      if SPACES[s:sub(-n)] then s = s:sub(1, -n - 1) end
    end
  until s == before
  return s
end

-- ## JSON -----------------------------------------------------------------------------------------
--
-- Strict, as Python's json reads it. An object is {keys = {…}, at = {key = value}, raw = {key =
-- text}}, a number {num = …, int = boolean, raw = text}: a configuration is passed on as it was
-- written, however many digits it has.

local ESCAPES = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r",
  t = "\t" }

local function skip(s, i)
  return s:find("[^ \t\n\r]", i) or #s + 1
end

local function json_string(s, i) -- i is behind the quote
  local parts, from = {}, i
  while true do
    local at = s:find('[%z\1-\31"\\]', from)
    if not at then error("text without an end") end
    parts[#parts + 1] = s:sub(from, at - 1)
    local c = s:sub(at, at)
    if c == '"' then return table.concat(parts), at + 1 end
    if c ~= "\\" then error("control character") end
    local e = s:sub(at + 1, at + 1)
    if e == "u" then
      local hex = s:match("^%x%x%x%x", at + 2) or error("\\u without four digits")
      local code = tonumber(hex, 16)
      from = at + 6
      if code >= 0xD800 and code < 0xDC00 then
        local low = s:match("^\\u(%x%x%x%x)", from)
        low = low and tonumber(low, 16)
        if low and low >= 0xDC00 and low < 0xE000 then
          code = 0x10000 + (code - 0xD800) * 1024 + low - 0xDC00
          from = from + 6
        end
      end
      parts[#parts + 1] = utf8_char(code)
    else
      parts[#parts + 1] = ESCAPES[e] or error("unknown escape")
      from = at + 2
    end
  end
end

local json_value

local function json_number(s, i)
  local whole = s:match("^%-?%d+", i)
  if not whole or whole:match("^%-?0%d") then error("no value") end
  local raw = whole .. (s:match("^%.%d+", i + #whole) or "")
  raw = raw .. (s:match("^[eE][+-]?%d+", i + #raw) or "")
  return { num = tonumber(raw) + 0.0, int = raw == whole, raw = raw }, i + #raw
end

local LITERALS = { { "true", true }, { "false", false }, { "null", NULL },
  { "NaN", { num = 0 / 0, raw = "NaN" } }, { "Infinity", { num = math.huge, raw = "Infinity" } },
  { "-Infinity", { num = -math.huge, raw = "-Infinity" } } }

local function json_object(s, i, depth)
  local found = { keys = {}, at = {}, raw = {} }
  i = skip(s, i)
  if s:sub(i, i) == "}" then return found, i + 1 end
  while true do
    if s:sub(i, i) ~= '"' then error("expected a name") end
    local key, value
    key, i = json_string(s, i + 1)
    i = skip(s, i)
    if s:sub(i, i) ~= ":" then error("expected :") end
    local from = skip(s, i + 1)
    value, i = json_value(s, from, depth + 1)
    if found.at[key] == nil then found.keys[#found.keys + 1] = key end
    found.at[key], found.raw[key] = value, s:sub(from, i - 1)
    i = skip(s, i)
    local c = s:sub(i, i)
    if c == "}" then return found, i + 1 end
    if c ~= "," then error("expected , or }") end
    i = skip(s, i + 1)
  end
end

local function json_array(s, i, depth)
  local found = { array = {} }
  i = skip(s, i)
  if s:sub(i, i) == "]" then return found, i + 1 end
  while true do
    found.array[#found.array + 1], i = json_value(s, skip(s, i), depth + 1)
    i = skip(s, i)
    local c = s:sub(i, i)
    if c == "]" then return found, i + 1 end
    if c ~= "," then error("expected , or ]") end
    i = i + 1
  end
end

function json_value(s, i, depth)
  if depth > 100 then error("nested too deeply") end
  local c = s:sub(i, i)
  if c == '"' then return json_string(s, i + 1) end
  if c == "{" then return json_object(s, i + 1, depth) end
  if c == "[" then return json_array(s, i + 1, depth) end
  for _, literal in ipairs(LITERALS) do
    if s:sub(i, i + #literal[1] - 1) == literal[1] then return literal[2], i + #literal[1] end
  end
  return json_number(s, i)
end

-- The value of a whole text, else nil.
function M.parse(s)
  local ok, value, i = pcall(json_value, s, skip(s, 1), 0)
  if ok and skip(s, i) > #s and is_utf8(s) then return value end
  return nil
end

-- A text in JSON's quotes, in ASCII. nil where it is no UTF-8.
local function quoted(s)
  if not is_utf8(s) then return nil end
  local out, i = {}, 1
  while i <= #s do
    local n, code = utf8_at(s, i)
    if code == 34 or code == 92 then out[#out + 1] = "\\" .. char(code)
    elseif code >= 32 and code < 127 then out[#out + 1] = char(code)
    elseif code < 0x10000 then out[#out + 1] = string.format("\\u%04x", code)
    else
      code = code - 0x10000
      out[#out + 1] = string.format("\\u%04x\\u%04x", 0xD800 + floor(code / 1024), 0xDC00 + code % 1024)
    end
    i = i + n
  end
  return '"' .. table.concat(out) .. '"'
end
M.quoted = quoted

local function number_text(x)
  if x == floor(x) and math.abs(x) < 2 ^ 63 then return string.format("%.0f", x) end
  return string.format("%.17g", x)
end

-- A plain Lua value as JSON; nil where there is none.
local function plain_json(value)
  if type(value) == "boolean" then return tostring(value) end
  if type(value) == "string" then return quoted(value) end
  if type(value) == "number" and value == value and math.abs(value) ~= math.huge then
    return number_text(value)
  end
  return nil
end

-- What somebody wrote into a variable: a number, true, false, else a text.
local function typed_json(text)
  local value = M.parse(text)
  if type(value) == "boolean" then return tostring(value) end
  if type(value) == "table" and value.num and value.num - value.num == 0 then return value.raw end
  return quoted(text)
end

-- ## The context key --------------------------------------------------------------------------------

local function is_finite(x) return x == x and x ~= math.huge and x ~= -math.huge end

local function to_float(value)
  if type(value) == "string" then
    local text = strip(value)
    local mantissa, exponent = text:match("^[+-]?([%d.]+)(.*)$")
    if not mantissa or not (mantissa:match("^%d+%.?%d*$") or mantissa:match("^%.%d+$")) then
      return nil
    end
    if exponent ~= "" and not exponent:match("^[eE][+-]?%d%d?%d?%d?$") then return nil end
    value = tonumber((text:gsub("^%+", "")))
  end
  if type(value) ~= "number" or not is_finite(value) then return nil end
  return value + 0.0 -- Lua 5.3 has integers, which overflow
end

-- Digits with a sign where it is negative, as Python's str(int(text)); nil beyond 64 bits.
local function whole_digits(text)
  local sign, digits = text:match("^([+-]?)0*(%d*)$")
  if digits == "" then return "0" end
  local most = sign == "-" and "9223372036854775808" or "9223372036854775807"
  if #digits > 19 or (#digits == 19 and less(most, digits)) then return nil end
  return (sign == "-" and "-" or "") .. digits
end

-- An integer as text; nil where the value is none.
local function to_int(value)
  if type(value) == "string" then
    local text = strip(value)
    local digits = text:match("^[+-]?(%d+)$")
    if digits and #digits <= 19 then return whole_digits(text) end
  end
  local x = to_float(value)
  if not x or x ~= floor(x) or x >= 2 ^ 63 or x < -2 ^ 63 then return nil end
  return string.format("%.0f", x == 0 and 0 or x)
end

local TRUE = { ["true"] = 1, t = 1, yes = 1, y = 1, on = 1, ["1"] = 1 }
local FALSE = { ["false"] = 1, f = 1, no = 1, n = 1, off = 1, ["0"] = 1 }

local function to_bool(value)
  if type(value) == "boolean" then return value end
  if type(value) == "string" then
    local text = strip(value):lower()
    if TRUE[text] then return true end
    if FALSE[text] then return false end
    value = to_float(text)
  end
  if value == 1 then return true end
  if value == 0 then return false end
  return nil
end

local function category_text(value)
  if type(value) == "string" then
    if is_utf8(value) then return value end
  elseif type(value) == "boolean" then
    return tostring(value)
  elseif type(value) == "number" and is_finite(value) then
    if value == floor(value) and math.abs(value) < 2 ^ 53 then
      return string.format("%.0f", value == 0 and 0 or value)
    end
    return string.format("%.15g", value)
  end
  return nil
end

local function encoded(text)
  return (text:gsub("[^A-Za-z0-9._-]", function(c) return string.format("%%%02X", byte(c)) end))
end

local function bucket_edge(value, factor)
  if value < 0 then return -bucket_edge(-value, factor) end
  if value == 0 then return 0 end
  local power = floor(math.log(value) / math.log(factor))
  for exponent = power + 1, power, -1 do
    if factor ^ exponent <= value * (1 + 1e-9) then return factor ^ exponent end
  end
  return factor ^ (power - 1)
end

local function key_text(value, kind, key)
  if value == nil or value == NULL then return "~" end
  local bucket = type(key) == "table" and key.bucket
  if kind == "category" then
    local text = category_text(value)
    return text and encoded(text) or "~"
  elseif kind == "bool" then
    local truth = to_bool(value)
    if truth == nil then return "~" end
    return tostring(truth)
  end
  if type(value) == "boolean" then return "~" end
  if kind == "int" then
    local text = to_int(value)
    if not text or not bucket then return text or "~" end
    value = tonumber(text)
  else
    value = to_float(value)
    if not value then return "~" end
  end
  if bucket then value = bucket_edge(value + 0.0, bucket) end
  return string.format("%.6g", value == 0 and 0 or value)
end

-- study|name=value|…. `features` is the study's [context]: a type, or {type = …, key = …}, by name.
function M.context_key(study, features, context)
  local names = {}
  for name in pairs(features) do names[#names + 1] = name end
  table.sort(names, less)
  local parts = { study }
  for _, name in ipairs(names) do
    local feature = features[name]
    local kind = type(feature) == "table" and feature.type or feature
    local key = type(feature) == "table" and feature.key or "value"
    if key ~= "ignore" then
      parts[#parts + 1] = name .. "=" .. key_text(context[name], kind, key)
    end
  end
  return table.concat(parts, "|")
end

-- ## SHA-256 ----------------------------------------------------------------------------------------

local band
local native = (loadstring == nil) and compile("return function(a, b) return a & b end") -- luacheck: ignore
if native then
  local both = native()
  band = function(a, b) return both(floor(a), floor(b)) end
else
  local AND = {} -- of two bytes
  for a = 0, 255 do
    for b = 0, 255 do
      local x, y, bit, r = a, b, 1, 0
      while x > 0 and y > 0 do
        if x % 2 == 1 and y % 2 == 1 then r = r + bit end
        x, y, bit = (x - x % 2) / 2, (y - y % 2) / 2, bit * 2
      end
      AND[a * 256 + b] = r
    end
  end
  band = function(a, b)
    local r, p = 0, 1
    for _ = 1, 4 do
      local x, y = a % 256, b % 256
      r, p = r + AND[x * 256 + y] * p, p * 256
      a, b = (a - x) / 256, (b - y) / 256
    end
    return r
  end
end

local function bxor(a, b) return a + b - 2 * band(a, b) end

local function rotate(x, n)
  local low = x % 2 ^ n
  return (x - low) / 2 ^ n + low * 2 ^ (32 - n)
end

local function shift(x, n) return (x - x % 2 ^ n) / 2 ^ n end

-- The first 32 bits of the fractions of roots of the first primes.
local function fractions(count, root)
  local found, n = {}, 2
  while #found < count do
    local prime = true
    for d = 2, floor(math.sqrt(n)) do
      if n % d == 0 then prime = false break end
    end
    if prime then found[#found + 1] = floor((n ^ root % 1) * 2 ^ 32) end
    n = n + 1
  end
  return found
end

local K, H = fractions(64, 1 / 3), fractions(8, 1 / 2)

-- The first eight bytes, as two numbers of 32 bits.
function M.sha256_64(message)
  local length = #message
  message = message .. "\128" .. ("\0"):rep((55 - length) % 64) .. ("\0"):rep(3)
    .. char(floor(length / 2 ^ 29) % 256, floor(length / 2 ^ 21) % 256, floor(length / 2 ^ 13) % 256,
      floor(length / 2 ^ 5) % 256, length * 8 % 256)
  local h = {}
  for i = 1, 8 do h[i] = H[i] end
  local w = {}
  for block = 1, #message, 64 do
    for i = 0, 15 do
      local a, b, c, d = byte(message, block + i * 4, block + i * 4 + 3)
      w[i] = ((a * 256 + b) * 256 + c) * 256 + d
    end
    for i = 16, 63 do
      local x, y = w[i - 15], w[i - 2]
      local s0 = bxor(bxor(rotate(x, 7), rotate(x, 18)), shift(x, 3))
      local s1 = bxor(bxor(rotate(y, 17), rotate(y, 19)), shift(y, 10))
      w[i] = (w[i - 16] + s0 + w[i - 7] + s1) % 2 ^ 32
    end
    local a, b, c, d, e, f, g, z = h[1], h[2], h[3], h[4], h[5], h[6], h[7], h[8]
    for i = 0, 63 do
      local s1 = bxor(bxor(rotate(e, 6), rotate(e, 11)), rotate(e, 25))
      local either = band(e, f) + band(4294967295 - e, g)
      local t1 = z + s1 + either + K[i + 1] + w[i]
      local s0 = bxor(bxor(rotate(a, 2), rotate(a, 13)), rotate(a, 22))
      local most = band(a, b) + band(bxor(a, b), c)
      z, g, f, e = g, f, e, (d + t1) % 2 ^ 32
      d, c, b, a = c, b, a, (t1 + s0 + most) % 2 ^ 32
    end
    for i, x in ipairs({ a, b, c, d, e, f, g, z }) do h[i] = (h[i] + x) % 2 ^ 32 end
  end
  return h[1], h[2]
end

local function lot(key, job_id)
  local high, low = M.sha256_64(key .. "|" .. job_id)
  return (high * 2 ^ 32 + low) / 2 ^ 64
end

-- ## Times ------------------------------------------------------------------------------------------

local DAYS = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 }

-- Seconds since 1970 of an RFC 3339 time; nil where it is none, or has no zone.
local function seconds_of(text)
  if type(text) ~= "string" then return nil end
  local year, month, day, hour, minute, second, rest =
    text:match("^(%d%d%d%d)%-(%d%d)%-(%d%d)[Tt ](%d%d):(%d%d):(%d%d)(.*)$")
  if not year then return nil end
  year, month, day = tonumber(year), tonumber(month), tonumber(day)
  hour, minute, second = tonumber(hour), tonumber(minute), tonumber(second)
  local fraction, zone = rest:match("^%.(%d+)(.*)$")
  zone = zone or rest
  local offset = 0
  if zone ~= "Z" and zone ~= "z" then
    local sign, h, m = zone:match("^([+-])(%d%d):(%d%d)$")
    if not sign or tonumber(h) > 23 or tonumber(m) > 59 then return nil end
    offset = (tonumber(h) * 60 + tonumber(m)) * (sign == "-" and -60 or 60)
  end
  local leap = (year % 4 == 0 and year % 100 ~= 0) or year % 400 == 0
  if year < 1 or month < 1 or month > 12 or hour > 23 or minute > 59 or second > 59 then return nil end
  if day < 1 or day > DAYS[month] + ((leap and month == 2) and 1 or 0) then return nil end
  local y, m = month > 2 and year or year - 1, (month + 9) % 12 -- years begin in March
  local days = y * 365 + floor(y / 4) - floor(y / 100) + floor(y / 400)
    + floor((m * 306 + 5) / 10) + day - 719469
  return days * 86400 + hour * 3600 + minute * 60 + second
    + tonumber("0." .. (fraction or "0"):sub(1, 6)) - offset
end
M.seconds_of = seconds_of

local function utc(seconds) return os.date("!%Y-%m-%dT%H:%M:%SZ", seconds) end

-- ## Recommendations --------------------------------------------------------------------------------

local function is_object(value) return type(value) == "table" and value.keys ~= nil end

-- As Python has it, where true is an integer that is 1.
local function int_of(value)
  if type(value) == "boolean" then return value and 1 or 0 end
  if type(value) == "table" and value.int then return value.num end
  return nil
end

local function number_of(value)
  if type(value) == "table" and value.num then return value.num end
  return int_of(value)
end

local function has_config(value) return is_object(value) and is_object(value.at.config) end

local function is_candidate(value)
  if not has_config(value) then return false end
  local at = value.at
  return type(at.candidate_id) == "string" and type(at.kind) == "string"
    and int_of(at.rank) ~= nil and number_of(at.share) ~= nil
    and (at.wanted == nil or int_of(at.wanted) ~= nil)
end

local function is_recommendation(message)
  if not is_object(message) or message.at.schema ~= M.SCHEMA then return false end
  local at = message.at
  if int_of(at.revision) == nil or type(at.context_key) ~= "string"
    or type(at.recommendation_id) ~= "string" or seconds_of(at.valid_until) == nil
    or type(at.candidates) ~= "table" or at.candidates.array == nil then
    return false
  end
  for _, candidate in ipairs(at.candidates.array) do
    if not is_candidate(candidate) then return false end
  end
  local incumbent, baseline = at.incumbent, at.baseline
  return (incumbent == nil or incumbent == NULL or has_config(incumbent))
    and (baseline == nil or baseline == NULL or is_object(baseline))
end

local function is_plan(key, message)
  if not is_object(message) or message.at.schema ~= M.PLAN_SCHEMA or message.at.context_key ~= key
    or type(message.at.windows) ~= "table" or message.at.windows.array == nil then
    return false
  end
  for _, window in ipairs(message.at.windows.array) do
    if not is_object(window) or seconds_of(window.at.valid_from) == nil
      or seconds_of(window.at.valid_until) == nil or type(window.at.context_key) ~= "string" then
      return false
    end
  end
  return true
end

local function ranked(message)
  local found = {}
  for i, candidate in ipairs(message.at.candidates.array) do
    found[i] = { at = candidate.at, raw = candidate.raw, rank = int_of(candidate.at.rank), i = i }
  end
  table.sort(found, function(a, b)
    if a.rank ~= b.rank then return a.rank < b.rank end
    return a.i < b.i
  end)
  return found
end

local function wanted_of(candidate)
  local wanted = candidate.at.wanted
  return wanted ~= nil and int_of(wanted) or 0
end

-- A round's number, to compare: null is like a missing one.
local function round_number(message)
  local value = message.at.round
  if value == nil or value == NULL then return "" end
  return tostring(number_of(value) or message.raw.round)
end

-- Revisions, messages and rounds that are known: one per process that chooses.
function M.new_state()
  return { messages = {}, revisions = {}, rounds = {}, plans = {}, known = 0 }
end

local function asks_anew(round, wanted)
  local full, count = false, 0
  for _ in pairs(round.wanted) do count = count + 1 end
  full = count >= M.MOST_WANTED
  for id, runs in pairs(wanted) do
    if runs > (round.wanted[id] or (full and runs or 0)) then return true end
  end
  return false
end

local function count_round(state, key, message)
  local wanted, any = {}, false
  for _, candidate in ipairs(ranked(message)) do
    local runs = wanted_of(candidate)
    if runs ~= 0 then wanted[candidate.at.candidate_id], any = runs, true end
  end
  if not any then
    state.rounds[key] = nil
    return
  end
  local round = state.rounds[key]
  local number = round_number(message)
  if not round or round.number ~= number or asks_anew(round, wanted) then
    round = { number = number, wanted = {}, runs = {}, jobs = {} }
    state.rounds[key] = round
  end
  round.wanted = wanted
  for id, runs in pairs(wanted) do round.runs[id] = math.max(runs, round.runs[id] or 0) end
end

-- Take what the file has under a key: nil where it has nothing, or null.
local function take(state, key, message)
  if message == nil or message == NULL then
    state.messages[key], state.rounds[key] = nil, nil
    return
  end
  if not is_recommendation(message) then return end
  local name, revision = message.at.context_key, int_of(message.at.revision)
  local known = state.revisions[name]
  if known and revision < known then return end
  if not known then
    state.known = state.known + 1
    if state.known > M.MOST_KNOWN then -- a flood: begin again
      state.messages, state.revisions, state.rounds, state.plans, state.known = {}, {}, {}, {}, 1
    end
  end
  state.revisions[name], state.messages[name] = revision, message
  count_round(state, name, message)
end

-- Take what the file has as the plan of a context.
local function take_plan(state, key, message)
  if message == nil or message == NULL then
    state.plans[key] = nil
  elseif is_plan(key, message) then
    state.plans[key] = message
  end
end

-- The key of the context that is foreseen now for one whose signal is not known, else nil.
local function foreseen(state, key, now)
  local plan = state.plans[key]
  for _, window in ipairs(plan and plan.at.windows.array or {}) do
    if seconds_of(window.at.valid_from) <= now and now < seconds_of(window.at.valid_until) then
      return window.at.context_key
    end
  end
  return nil
end

local function live(message, now)
  return message.at.state == "active" and now < seconds_of(message.at.valid_until)
end

-- ## The file ---------------------------------------------------------------------------------------

-- A regular file that is open for reading, and its size; else nil and why. Opening a pipe for
-- reading waits for a writer. Opened for both it does not, and has no end to seek.
local function open_regular(path)
  local file, why, code = io.open(path, "r+b")
  if not file and code ~= 2 then -- 2: there is none
    -- It may not be written here: ask the shell what it is, which takes a millisecond.
    local is = os.execute("test -f '" .. path:gsub("'", "'\\''") .. "'")
    if is == 0 or is == true then file, why = io.open(path, "rb") end
  end
  if not file then return nil, why end
  local size = file:seek("end")
  if not size then
    file:close()
    return nil, path .. ": is not a regular file"
  end
  return file, size
end
M.open_regular = open_regular

-- Reads lines of bounded length, and only so many bytes of all.
local function reader(file)
  local self = { left = M.MOST_READ }
  function self.line(at) -- the line that begins at an offset, with its end; else nil
    file:seek("set", at)
    local parts, size = {}, 0
    while size < M.MOST_LINE do
      local part = file:read(math.min(8192, M.MOST_LINE - size))
      if not part then return nil end
      self.left = self.left - #part
      if self.left < 0 then error("reads more than it may", 0) end
      local stop = part:find("\n", 1, true)
      if stop then
        parts[#parts + 1] = part:sub(1, stop)
        return table.concat(parts)
      end
      parts[#parts + 1] = part
      size = size + #part
    end
    return nil
  end
  return self
end

local function key_of(line)
  if line:sub(1, 8) ~= '{"key":"' then return nil end
  local ok, key = pcall(json_string, line, 9)
  return ok and is_utf8(line) and key or nil
end

-- The value under a key in the sorted lines; nil where there is none, false where it is rubbish.
local function bisect(lines, key, low, high)
  while low < high do
    local middle = floor((low + high) / 2)
    local begin = low
    if middle > low then -- the first line that begins there or later
      local part = lines.line(middle - 1)
      if not part then
        begin = high
      else
        begin = middle - 1 + #part
      end
    end
    if begin >= high then
      high = middle
    else
      local line = lines.line(begin)
      local found = line and key_of(line)
      if not found then return nil end
      if found == key then
        local record = M.parse(line)
        if not is_object(record) or record.at.value == nil then return false end
        return record.at.value
      end
      if less(found, key) then low = begin + #line else high = middle end
    end
  end
  return nil
end

-- The keys to look up, in their order.
local function keys_of(state, key, now)
  local keys, planned = { key, (key:match("^[^|]*")) }, foreseen(state, key, now)
  if planned then table.insert(keys, 1, planned) end
  return keys
end

-- The message to follow: of the context that is foreseen in the place of this one, else of this key,
-- else of the study's empty context, else nil and why.
local function find(state, path, key, now)
  local file, size = open_regular(path)
  local why = not file and size or nil
  if file then
    local ok, problem = pcall(function()
      if file:seek("set", 0) ~= 0 or file:read(#M.SORTED_LINE) ~= M.SORTED_LINE then
        error(path .. ": is not a file of tunerd subscribe", 0)
      end
      local lines = reader(file)
      if key:find("=~", 1, true) then -- a plan is for a context without its signal
        local plan = bisect(lines, M.PLAN_KEY .. key, #M.SORTED_LINE, size)
        if plan ~= false then take_plan(state, key, plan) end
      end
      for _, one in ipairs(keys_of(state, key, now)) do
        local value = bisect(lines, one, #M.SORTED_LINE, size)
        if value ~= false then take(state, one, value) end
        local message = state.messages[one]
        if message and live(message, now) then break end
      end
    end)
    file:close()
    if not ok then return nil, problem end
  end
  for _, one in ipairs(keys_of(state, key, now)) do
    local message = state.messages[one]
    if message and live(message, now) then return message, nil end
  end
  return nil, why
end

local function of_round(state, message, job_id)
  local round = state.rounds[message.at.context_key]
  if not round then return nil end
  local wanted = {}
  for _, candidate in ipairs(ranked(message)) do
    if wanted_of(candidate) ~= 0 then wanted[#wanted + 1] = candidate end
  end
  for _, candidate in ipairs(wanted) do
    local jobs = round.jobs[candidate.at.candidate_id]
    if jobs and jobs[job_id] then return candidate end
  end
  for _, candidate in ipairs(wanted) do
    local id = candidate.at.candidate_id
    local jobs = round.jobs[id] or { count = 0 }
    round.jobs[id] = jobs
    if jobs.count < round.runs[id] then
      jobs[job_id], jobs.count = true, jobs.count + 1
      return candidate
    end
  end
  return nil
end

local function by_share(message, job_id)
  local drawn, cumulated
  for _, candidate in ipairs(ranked(message)) do
    local share = number_of(candidate.at.share)
    cumulated = (cumulated or 0) + share
    if share ~= 0 and not drawn then drawn = lot(message.at.context_key, job_id) end
    if drawn and drawn < cumulated then return candidate end
  end
  return nil
end

-- What a message says: {config, kind, recommendation_id, candidate_id, match, revision}. Without a
-- candidate the incumbent's, else the baseline's; nil where there is neither.
local function choice_of(message, key, candidate)
  local at = message.at
  local choice = { recommendation_id = at.recommendation_id, revision = int_of(at.revision),
    match = at.context_key == key and "exact"
      or at.context_key == key:match("^[^|]*") and "fallback" or "foreseen" }
  if candidate then
    choice.config, choice.config_raw = candidate.at.config, candidate.raw.config
    choice.kind, choice.candidate_id = candidate.at.kind, candidate.at.candidate_id
  elseif is_object(at.incumbent) then
    choice.config, choice.config_raw = at.incumbent.at.config, at.incumbent.raw.config
    choice.kind = "incumbent"
  elseif is_object(at.baseline) and #at.baseline.keys > 0 then
    choice.config, choice.config_raw = at.baseline, message.raw.baseline
    choice.kind, choice.match = "baseline", "baseline"
  else
    return nil
  end
  return choice
end

-- What to launch a job with; nil, and perhaps why, where there is nothing to say. As
-- RecommendationFile.choose.
function M.choose(state, path, key, job_id, attempt, now)
  local message, why = find(state, path, key, now)
  if not message then return nil, why end
  local candidate
  if (attempt or 1) <= 1 then
    candidate = of_round(state, message, job_id) or by_share(message, job_id)
  end
  return choice_of(message, key, candidate)
end

-- The lot as 16 hexadecimal digits, which a shell can compare.
local function lot_text(key, job_id)
  return string.format("%08x%08x", M.sha256_64(key .. "|" .. job_id))
end

-- For tasks of an array, whose numbers are not known yet: the candidates, each with the digits below
-- which a task's lot has it, and the key that lots are drawn with.
local function draws_of(state, path, key, now)
  local message = find(state, path, key, now)
  if not message then return {}, "" end
  local draws, cumulated = {}, 0
  for _, candidate in ipairs(ranked(message)) do
    local share = number_of(candidate.at.share)
    cumulated = cumulated + share
    if share > 0 then
      local high = floor(cumulated * 2 ^ 32)
      local below = "g" -- above all digits
      if cumulated < 1 then below = string.format("%08x%08x", high, floor((cumulated * 2 ^ 32 - high) * 2 ^ 32)) end
      draws[#draws + 1] = { below = below, choice = choice_of(message, key, candidate) }
    end
  end
  return draws, message.at.context_key
end

-- ## What is tuned: the table of studies -------------------------------------------------------------

local NO_VAL = { [4294967294] = true, [65534] = true, [254] = true, [18446744073709551614] = true,
  [4294967295] = true, [65535] = true }

-- Slurm's number, nil where it means that nothing was said.
function M.number(value)
  value = tonumber(value)
  return value and not NO_VAL[value] and value or nil
end

-- A job that raises at nothing, and has only what was said.
local function view(job)
  local function get(from, name)
    local ok, value = pcall(function() return from[name] end)
    return ok and value or nil
  end
  local environment = get(job, "environment")
  local seen = setmetatable({}, { __index = function(_, name) return environment and get(environment, name) end })
  return setmetatable({ environment = seen }, { __index = function(_, name)
    local value = get(job, name)
    if type(value) == "number" then return M.number(value) end
    return value
  end })
end

local TYPES = { category = true, int = true, float = true, bool = true }

local function table_of(value) return type(value) == "table" and value or {} end

-- What is wrong with the table of studies, as sentences.
local function problems_of(conf)
  local found = {}
  local function expect(ok, text) if not ok then found[#found + 1] = text end end
  if type(conf) ~= "table" then return { "it returns no table" } end
  expect(type(conf.file) == "string", "file: should be the path of tunerd subscribe's --file")
  expect(conf.spool == nil or type(conf.spool) == "string", "spool: should be a path")
  expect(type(conf.cluster) == "string" and conf.cluster ~= "", "cluster: should be a name")
  expect(type(conf.studies) == "table", "studies: should be a list")
  for i, one in ipairs(table_of(conf.studies)) do
    local where = "studies[" .. i .. "]"
    local function expect_table(name, needed)
      local ok = type(one[name]) == "table" or (one[name] == nil and not needed)
      expect(ok, where .. "." .. name .. ": should be a table")
    end
    if type(one) ~= "table" or type(one.study) ~= "string" then
      expect(false, where .. ".study: should be the study's name")
    else
      expect_table("features", true)
      expect_table("context", true)
      expect_table("variables")
      expect_table("defaults")
      expect(type(one.match) == "table" or type(one.match) == "function",
        where .. ".match: should be patterns by field, or a function")
      for name, feature in pairs(table_of(one.features)) do
        local kind = type(feature) == "table" and feature.type or feature
        expect(TYPES[kind], where .. ".features." .. tostring(name) .. ": should be category, int, float or bool")
        expect(table_of(one.context)[name] ~= nil, where .. ".context." .. tostring(name) .. ": is missing")
      end
      expect(one.elapsed == nil or type(one.elapsed) == "string", where .. ".elapsed: should be a metric's name")
    end
  end
  return found
end

-- The table of studies, from its text. Raises what is wrong with it.
function M.read_conf(text, name)
  local chunk, why = compile(text, "@" .. name)
  if not chunk then error(why, 0) end
  local conf = chunk()
  local problems = problems_of(conf)
  if #problems > 0 then error(name .. ": " .. table.concat(problems, "; "), 0) end
  return conf
end

local cached = {} -- the table is read anew when its text changes

local function load_conf(path)
  local file, why = io.open(path, "rb")
  if not file then error(why, 0) end
  local text = file:read(M.MOST_LINE) or ""
  file:close()
  if cached.path ~= path or cached.text ~= text then
    cached = { path = path, text = text, conf = M.read_conf(text, path) }
  end
  return cached.conf
end

local function matches(one, job)
  if type(one.match) == "function" then return one.match(job) and true or false end
  for field, pattern in pairs(one.match) do
    local value = job[field]
    if value == nil or not tostring(value):find(pattern) then return false end
  end
  return next(one.match) ~= nil
end

-- The study of a job: the one that it asks for, else the first that matches, else nil.
local function study_of(conf, job)
  local asked = job.environment.TUNERD_SLURM_STUDY
  if asked == "none" then return nil end
  for _, one in ipairs(conf.studies) do
    if asked and one.study == asked or not asked and matches(one, job) then return one end
  end
  return nil
end

local function context_of(one, job)
  local found = {}
  for name in pairs(one.features) do
    local value = one.context[name]
    if type(value) == "function" then value = value(job) end
    if type(value) == "string" and not is_utf8(value) then value = nil end
    found[name] = value
  end
  return found
end

-- ## Submission -----------------------------------------------------------------------------------

local function upper(name) return (name:gsub("%l", string.upper)) end

-- A value as a program reads it, from its JSON: a text as it is, all else as JSON.
local function text_of(value, raw)
  if type(value) == "string" then return value end
  return raw
end

-- A configuration for a job: names in order, JSON by name, and the text of each.
local function config_of(choice, defaults)
  local found = { names = {}, json = {}, text = {} }
  local function add(name, json, text)
    if found.json[name] == nil then
      found.names[#found.names + 1] = name
      found.json[name], found.text[name] = json, text
    end
  end
  if choice then
    for _, name in ipairs(choice.config.keys) do
      add(name, choice.config.raw[name], text_of(choice.config.at[name], choice.config.raw[name]))
    end
  end
  local names = {}
  for name in pairs(defaults or {}) do names[#names + 1] = name end
  table.sort(names, less)
  for _, name in ipairs(names) do
    local json = plain_json(defaults[name])
    if json then
      local text = type(defaults[name]) == "string" and defaults[name] or json
      add(name, json, text)
    end
  end
  return found
end

local function config_json(config)
  local parts = {}
  for _, name in ipairs(config.names) do
    parts[#parts + 1] = (quoted(name) or error("a name that is not UTF-8")) .. ": " .. config.json[name]
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- The variables that tell a program its configuration, and a training whose it is, in order.
local function variables_of(config, own, choice, cluster)
  local found = {}
  local function add(name, text)
    if text:find("%z") or not name:match("^[A-Za-z_][A-Za-z0-9_]*$") then
      error("cannot set " .. name .. ": a variable has no NUL, and a plain name", 0)
    end
    found[#found + 1] = { name = name, text = text }
  end
  for _, name in ipairs(config.names) do
    add("TUNERD_PARAM_" .. upper(name), config.text[name])
    if own and own[name] then add(own[name], config.text[name]) end
  end
  add("TUNERD_CONFIG", config_json(config))
  add("TUNERD_RECOMMENDATION_ID", choice.recommendation_id)
  add("TUNERD_CANDIDATE_ID", choice.candidate_id or "")
  add("TUNERD_CLUSTER", cluster)
  return found
end

-- Lines that Slurm's TaskProlog prints to change a task's environment.
local function prolog_lines(variables, before)
  local lines, set = {}, {}
  for _, one in ipairs(variables) do
    if one.text:find("[\r\n]") then return nil end
    set[one.name] = true
    lines[#lines + 1] = "export " .. one.name .. "=" .. one.text
  end
  for _, one in ipairs(before) do
    if not set[one.name] then lines[#lines + 1] = "unset " .. one.name end
  end
  return table.concat(lines, "\n")
end

-- What a job's environment has of the study already, by parameter; whether a user set any of it; and
-- the configuration of an outer job. One that submits the next hands on what was set for itself.
local function inherited(one, job)
  local found, users = {}, false
  local outer = M.parse(job.environment.TUNERD_SLURM_SET or "")
  local set = is_object(outer) and is_object(outer.at.variables) and outer.at.variables.at or {}
  for parameter, name in pairs(one.variables or {}) do
    local text = job.environment[name]
    found[parameter] = text
    if text and set[name] ~= text then users = true end
  end
  local config = is_object(outer) and outer.at.study == one.study and M.parse(job.environment.TUNERD_CONFIG or "")
  return found, users, is_object(config) and { config = config } or nil
end

local counter = 0

-- What stands in for the job's id in the lot: at submission it has none yet.
local function token_of(uid)
  counter = counter + 1
  return string.format("%s-%d-%d-%s", tostring(uid), os.time(), counter,
    tostring({}):match("0x(%x+)") or tostring(os.clock()))
end

local function choice_json(choice, config)
  local function text(value) return value and quoted(value) or "null" end
  return string.format('"config": %s, "kind": %s, "match": %s, "recommendation_id": %s, "candidate_id": %s, "revision": %s',
    config_json(config), text(choice and choice.kind), text(choice and choice.match),
    text(choice and choice.recommendation_id), text(choice and choice.candidate_id),
    choice and number_text(choice.revision) or "null")
end

local function context_json(context)
  local names, parts = {}, {}
  for name in pairs(context) do names[#names + 1] = name end
  table.sort(names, less)
  for _, name in ipairs(names) do
    local json = plain_json(context[name])
    if json then parts[#parts + 1] = quoted(name) .. ": " .. json end
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

local state = M.new_state()

-- What becomes of a job: the variables to set, the record to keep with it, a sentence for its user.
-- nil where no study is for it. `why` says what was wrong with the file.
function M.plan(conf, job, uid, now)
  local one = study_of(conf, job)
  if not one then return nil end
  local context = context_of(one, job)
  local key = M.context_key(one.study, one.features, context)
  local token = token_of(uid)
  -- Tasks of an array share one environment. A candidate for all of them would be far more than its
  -- share, so they get what a retry gets, and TaskProlog draws for each.
  local attempt = job.array_inx and 2 or 1
  local given, users, outer = inherited(one, job)
  local choice, why
  if not users then choice, why = M.choose(state, conf.file, key, token, attempt, now) end
  local config = config_of(choice or outer, one.defaults)
  if not choice then -- it runs with what it has
    local names = {}
    for name in pairs(given) do names[#names + 1] = name end
    table.sort(names, less)
    for _, name in ipairs(names) do
      if config.json[name] == nil then config.names[#config.names + 1] = name end
      config.json[name], config.text[name] = typed_json(given[name]), given[name]
      if not config.json[name] then error("a variable that is not UTF-8", 0) end
    end
  end
  local plan = { study = one.study, key = key, choice = choice, why = why, set = {} }
  local more = ""
  if choice then
    plan.set = variables_of(config, one.variables, choice, conf.cluster)
    local candidate = choice.candidate_id and conf.task_prolog
    local again = candidate and M.choose(state, conf.file, key, token, 2, now)
    if again then
      local retry = config_of(again, one.defaults)
      local lines = prolog_lines(variables_of(retry, one.variables, again, conf.cluster), plan.set)
      if lines then
        plan.set[#plan.set + 1] = { name = "TUNERD_SLURM_RETRY", text = lines }
        more = ', "retry": {' .. choice_json(again, retry) .. "}"
      end
    end
    local draws, drawn_key = {}, ""
    if job.array_inx and conf.task_prolog then draws, drawn_key = draws_of(state, conf.file, key, now) end
    local tasks, told = { drawn_key }, {}
    for _, draw in ipairs(draws) do
      local its = config_of(draw.choice, one.defaults)
      local lines = prolog_lines(variables_of(its, one.variables, draw.choice, conf.cluster), plan.set)
      if not lines then told = {} break end
      tasks[#tasks + 1] = "below " .. draw.below .. "\n" .. lines
      told[#told + 1] = string.format('{"below": "%s", %s}', draw.below, choice_json(draw.choice, its))
    end
    if #told > 0 then
      plan.set[#plan.set + 1] = { name = "TUNERD_SLURM_TASKS", text = table.concat(tasks, "\n") }
      more = more .. string.format(', "key": %s, "draws": [%s]', quoted(drawn_key), table.concat(told, ", "))
    end
    local set = {}
    for _, own in pairs(one.variables or {}) do
      for _, variable in ipairs(plan.set) do
        if variable.name == own then set[#set + 1] = quoted(own) .. ": " .. (quoted(variable.text) or "null") end
      end
    end
    plan.set[#plan.set + 1] = { name = "TUNERD_SLURM_SET",
      text = string.format('{"study": %s, "variables": {%s}}', quoted(one.study), table.concat(set, ", ")) }
  end
  if one.elapsed then more = more .. ', "elapsed": ' .. (quoted(one.elapsed) or "null") end
  plan.record = string.format('tunerd {"study": %s, "context": %s, "lot": %s, %s%s}',
    quoted(one.study) or error("a study that is not UTF-8"), context_json(context), quoted(token),
    choice_json(choice, config), more)
  if #plan.record > M.MOST_RECORD then error("the configuration is too large to keep with a job", 0) end
  local shown = {}
  for _, name in ipairs(config.names) do shown[#shown + 1] = name .. "=" .. config.text[name] end
  plan.shown = string.format("%s: %s (%s)", one.study, table.concat(shown, " "),
    choice and choice.kind .. ", " .. choice.match or users and "as you set it" or "nothing is recommended")
  return plan
end

-- ## What slurmctld calls -----------------------------------------------------------------------------

local said = {}

-- A text for a log or a terminal: what others chose must not write to either.
function M.shown(text)
  return (text:sub(1, 1000):gsub("%c", "?"))
end

local function log(how, text)
  local logger = type(slurm) == "table" and slurm["log_" .. how] -- luacheck: ignore
  if logger then logger("tunerd: %s", M.shown(text)) end
end

-- A complaint, once a minute.
local function complain(text)
  local now = os.time()
  if said[text] and now - said[text] < M.SAY_EVERY_S then return end
  local count = 0
  for _ in pairs(said) do count = count + 1 end
  if count > 100 then said = {} end
  said[text] = now
  log("error", text)
end
M.complain = complain

-- Call within a bound on instructions; what was raised is complained of.
local function guarded(what, call)
  local function stop() error("took too long", 0) end
  local former, mask, every
  local hooks = type(debug) == "table" and debug.sethook
  if hooks then
    former, mask, every = debug.gethook()
    debug.sethook(stop, "", M.MOST_STEPS)
  end
  local ok, result = pcall(call)
  if hooks then debug.sethook(former, mask or "", every or 0) end
  if ok then return result end
  pcall(complain, what .. ": " .. tostring(result))
  return nil
end

-- At submission: set what is recommended. The job is submitted whatever happens here.
function M.submit(job, uid, conf_path)
  guarded("a job is submitted unchanged", function()
    if job.script == nil then return end -- srun and salloc: there is no environment to set
    -- What an outer job followed, or would have got, had it run again, is not for this one.
    for _, name in ipairs({ "TUNERD_SLURM_RETRY", "TUNERD_SLURM_TASKS", "TUNERD_RECOMMENDATION_ID",
      "TUNERD_CANDIDATE_ID" }) do
      if job.environment[name] then job.environment[name] = "" end
    end
    local conf = load_conf(conf_path)
    local plan = M.plan(conf, view(job), uid, os.time())
    if not plan then return end
    if plan.why then complain("nothing is recommended: " .. plan.why) end
    local comment = job.admin_comment
    -- The record first: a job whose environment is set and of which nothing is kept would count
    -- for nothing.
    job.admin_comment = (comment and comment ~= "" and comment .. " " or "") .. plan.record
    for _, one in ipairs(plan.set) do job.environment[one.name] = one.text end
    log("info", plan.shown)
    if conf.tell and plan.choice then slurm.log_user("tunerd: %s", M.shown(plan.shown)) end -- luacheck: ignore
  end)
end

local STATUSES = { [3] = "succeeded", [4] = "cancelled", [5] = "failed", [6] = "timeout",
  [7] = "node_failure", [8] = "preempted", [9] = "node_failure", [10] = "timeout",
  [11] = "out_of_memory" }

local function has_bit(number, bit) return floor(number / bit) % 2 == 1 end

-- What was kept at submission, wherever others put what they keep.
local function record_of(comment)
  local at = comment:find("tunerd {", 1, true)
  while at do
    local ok, record = pcall(json_value, comment, at + 7, 0)
    if ok and is_object(record) and type(record.at.study) == "string" then return record end
    at = comment:find("tunerd {", at + 1, true)
  end
  return nil
end

local function job_id_of(job)
  local number = M.number
  local array, task = number(job.array_job_id), number(job.array_task_id)
  if array and array ~= 0 and task then return string.format("%.0f_%.0f", array, task) end
  local het, offset = number(job.het_job_id), number(job.het_job_offset)
  if het and het ~= 0 and offset then return string.format("%.0f+%.0f", het, offset) end
  return string.format("%.0f", job.job_id)
end

local function gpus_of(tres)
  tres = "," .. (tres or "") .. ","
  local all = tres:match(",gres/gpu=(%d+),")
  if all then return tonumber(all) end
  local sum
  for count in tres:gmatch(",gres/gpu:[^=,]+=(%d+)") do sum = (sum or 0) + tonumber(count) end
  return sum
end

-- The halves of a job that ended, as lines; "" for one that is not tuned or never began.
function M.halves(conf, job)
  local comment = job.admin_comment
  local record = comment and record_of(comment)
  local start, finish = M.number(job.start_time), M.number(job.end_time)
  if not record or not start or start == 0 or not finish or not job.nodes or job.nodes == "" then
    return ""
  end
  local code, restarts = M.number(job.job_state) or 0, M.number(job.restart_cnt) or 0
  local status = STATUSES[code % 256]
  if not status and has_bit(code, 1024) then status = "preempted" end -- it is queued again
  if not status then return "" end
  local id, attempt = job_id_of(job), restarts + 1
  local chosen = record
  if restarts > 0 then
    if is_object(record.at.retry) then chosen = record.at.retry end
  elseif type(record.at.key) == "string" and type(record.at.draws) == "table" then
    local drawn = lot_text(record.at.key, id)
    for _, draw in ipairs(record.at.draws.array or {}) do
      if less(drawn, draw.at.below) then chosen = draw break end
    end
  end
  local head = string.format('{"schema": "tunerd.job/1", "source": %s, "job_id": "%s", "attempt": %.0f, ',
    quoted("slurm/" .. conf.cluster), id, attempt)
  local ids = ""
  for _, name in ipairs({ "recommendation_id", "candidate_id" }) do
    local value = chosen.at[name]
    if type(value) == "string" then ids = ids .. string.format(', "%s": %s', name, quoted(value)) end
  end
  local labels = {}
  local function label(name, value)
    value = value ~= nil and value ~= NULL and quoted(tostring(value):sub(1, 1000))
    if value then labels[#labels + 1] = string.format('"%s": %s', name, value) end
  end
  for name, field in pairs({ job_name = "name", partition = "partition", account = "account", qos = "qos",
    slurm_nodes = "nodes" }) do
    label(name, job[field])
  end
  label("match", chosen.at.match)
  label("kind", chosen.at.kind)
  label("lot", record.at.key and id or record.at.lot)
  local exit = M.number(job.exit_code)
  if exit then label("exit_code", string.format("%.0f:%.0f", floor(exit / 256), exit % 128)) end
  table.sort(labels, less)
  local more = ""
  local gpus = gpus_of(job.tres_fmt_alloc_str)
  if gpus then more = string.format(', "gpus": %.0f', gpus) end
  local user = job.user_name or M.number(job.user_id)
  user = user and quoted(tostring(user))
  if user then more = more .. ', "user": ' .. user end
  if type(record.at.elapsed) == "string" and status == "succeeded" then
    -- Slurm counts whole seconds. 0 would be no speed at all, and count as a failure.
    local elapsed = math.max(1, finish - start)
    more = more .. string.format(', "metrics": {%s: %.0f}', quoted(record.at.elapsed), elapsed)
  end
  -- Told again it is the same event: a name follows from what it says.
  return string.format('%s"type": "started", "event_id": "%s-%.0f", "study": %s, "context": %s, "config": %s%s, "started_at": "%s"}\n',
      head, id, start, quoted(record.at.study), record.raw.context, chosen.raw.config, ids, utc(start))
    .. string.format('%s"type": "completed", "partial": true, "event_id": "%s-%.0f-%.0f-%s", "status": "%s", "started_at": "%s", "finished_at": "%s", "labels": {%s}%s}\n',
      head, id, start, finish, status, status, utc(start), utc(finish), table.concat(labels, ", "), more)
end

-- Append in one write, after a line that somebody else left torn.
local function append(path, text)
  local file, why = io.open(path, "a+b") -- for both: a pipe is not waited for
  if not file then return nil, why end
  local size = file:seek("end")
  if not size then
    file:close()
    return nil, path .. ": is not a regular file"
  end
  if size > 0 then
    file:seek("end", -1)
    if file:read(1) ~= "\n" then text = "\n" .. text end
    file:seek("end")
  end
  file:setvbuf("full", #text + 1)
  local ok, problem = file:write(text)
  if ok then ok, problem = file:flush() end
  file:close()
  return ok, problem
end

local pending = {}

-- When a job ended: write its halves to the spool. Those that cannot be written wait for the next.
function M.complete(job, conf_path)
  return guarded("an end is not told", function()
    local comment = job.admin_comment
    if not comment or not comment:find("tunerd {", 1, true) then return end
    local conf = load_conf(conf_path)
    if not conf.spool then return end
    local text = M.halves(conf, view(job))
    if text == "" then return end
    pending[#pending + 1] = text
    if #pending > M.MOST_PENDING then
      table.remove(pending, 1)
      complain(conf.spool .. ": an end of a job is lost")
    end
    local ok, why = append(conf.spool, table.concat(pending))
    if ok then pending = {} else complain(conf.spool .. ": " .. tostring(why) .. "; ends of jobs wait") end
    return ok
  end)
end

-- The same from what jobcomp/script gives, which is less: what was kept at submission and how often
-- the job was restarted has to be asked. `get` reads a variable, `show` is `scontrol show job ID`.
function M.job_of_script(get, show)
  local state, codes = get("JOBSTATE") or "", { NODE_FAIL = 7, BOOT_FAIL = 9, PREEMPTED = 8,
    COMPLETED = 3, CANCELLED = 4, FAILED = 5, TIMEOUT = 6, DEADLINE = 10, OUT_OF_MEMORY = 11 }
  local code, signal = (get("EXITCODE") or ""):match("^(%d+):(%d+)$")
  local restarts = tonumber(show:match("%sRestarts=(%d+)")) or 0
  -- It is queued again, and was counted already.
  local again = state == "PENDING" or state:find("REQUEUE", 1, true)
  return {
    job_id = tonumber(get("JOBID")),
    array_job_id = tonumber(get("ARRAYJOBID")),
    array_task_id = tonumber(get("ARRAYTASKID")),
    het_job_id = tonumber(get("HETJOBID")),
    het_job_offset = tonumber(get("HETJOBOFFSET")),
    job_state = codes[state:match("^[A-Z_]*")] or (again and 1024 or 0),
    restart_cnt = math.max(0, again and restarts - 1 or restarts),
    admin_comment = show:match("\n%s*AdminComment=([^\n]*)"),
    start_time = tonumber(get("START")),
    end_time = tonumber(get("END")),
    exit_code = code and tonumber(code) * 256 + tonumber(signal),
    name = get("JOBNAME"),
    partition = get("PARTITION"),
    account = get("ACCOUNT"),
    qos = get("QOS"),
    nodes = get("NODES"),
    user_name = get("USERNAME"),
    tres_fmt_alloc_str = show:match("\n%s*TRES=([^\n]*)"),
  }
end

return M
