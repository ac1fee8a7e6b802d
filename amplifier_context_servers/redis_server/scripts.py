"""The scripts in Lua that read and change a session in Redis, each atomic, and the layout of a session.

A session is one hash, ``{prefix:SESSION}:session``: it is there or it is gone, never in part. Its fields:

- `change`: the revision of the last change, and `shape` that of the last one that altered earlier rows.
- `length`, `archived`: numbers of rows. `last_seq`, `size` (bytes) and `updated` (microseconds; absent if
  nothing was ever written) describe the history. `cp` is the checkpoint, and `covered` how much it covers.
- `fence` (its token), `holder` and `expires` (milliseconds): the lease.
- ``e:INDEX``: a row of the history. ``a:NUMBER``: one of the archive.
- ``s:SEQ``: the index of a row whose index is not its seq - 1.

A row is ``seq turn tokens extra``, a line end, and the message; all JSON is without raw line ends. The braces are a
hash tag: a cluster keeps all keys of a session on one node, those of its former layout too.

A script that failed half-way would leave half of a change. So each script checks everything before it writes: first
the guard (fence and last revision), then the rest. After that it runs only commands that cannot fail. All times are
the server's.
"""

from __future__ import annotations

_PRELUDE = """
if redis.replicate_commands then pcall(redis.replicate_commands) end
local h = KEYS[1]
local time = redis.call('TIME')
local micros = time[1] .. string.format('%06d', time[2])
local millis = time[1] * 1000 + math.floor(time[2] / 1000)

local function call(name, ...) return redis.call(name, h, ...) end
local function number_of(field) return tonumber(call('HGET', field) or '0') end
local function seq_of(row) return string.match(row, '^(%-?%d+) ') or '' end

local function guard_matches(fence, last)
    local found = call('HMGET', 'fence', 'change')
    return found[1] == fence and (found[2] or '0') == last
end

local function changed(change, ttl, shape)
    call('HSET', 'change', change, 'updated', micros, 'expires', string.format('%.0f', millis + ttl))
    if shape then call('HSET', 'shape', change) end
    call('PERSIST')
end

-- Returns the fields of `driver.StateReply`.
local function state()
    local found = call('HMGET', 'fence', 'holder', 'length', 'last_seq', 'change', 'updated', 'size', 'shape',
        'archived', 'expires')
    for i, absent in ipairs({'', '', '0', '0', '0', '', '0', '', '0', '0'}) do found[i] = found[i] or absent end
    found[10] = tonumber(found[10]) > millis and 1 or 0
    return found
end

local function index_of(seq)
    local index = call('HGET', 's:' .. seq)
    if index then return tonumber(index) end
    index = tonumber(seq) - 1
    local row = call('HGET', 'e:' .. index)
    return row and seq_of(row) == seq and index
end

local function put(index, row)
    local seq = seq_of(row)
    call('HSET', 'e:' .. index, row)
    if tonumber(seq) ~= index + 1 then call('HSET', 's:' .. seq, index) end
end

local function archive(row) call('HSET', 'a:' .. (call('HINCRBY', 'archived', 1) - 1), row) end
"""

_CARRIED_OVER_FIRST = """
if call('EXISTS') == 0 and redis.call('EXISTS', KEYS[2]) == 1 then return 'FORMER' end
"""

DUPLICATE_SEQ = 3  # the reply if the history holds one of the seqs already; of a refused change it is 0, else 1
FORMER = b"FORMER"  # the reply of any script for a session that is still in the former layout, see `former`


def script(body: str, *, of_former: bool = False) -> str:
    """Return the source of a script. Unless it is one for sessions in the former layout, it refuses those."""
    return _PRELUDE + ("" if of_former else _CARRIED_OVER_FIRST) + body


# ARGV: fence, holder, ttl, how long an unused lease is kept (milliseconds), former fence
ACQUIRE = script("""
local found = call('HMGET', 'fence', 'expires')
if not found[1] or found[1] == ARGV[1] or found[1] == ARGV[5] or tonumber(found[2]) <= millis then
    call('HSET', 'fence', ARGV[1], 'holder', ARGV[2], 'expires', string.format('%.0f', millis + ARGV[3]))
    if call('HEXISTS', 'updated') == 0 then call('PEXPIRE', ARGV[4]) end
end
return state()
""")

# ARGV: fence, ttl, how long an unused lease is kept (milliseconds)
RENEW = script("""
if call('HGET', 'fence') ~= ARGV[1] then return 0 end
call('HSET', 'expires', string.format('%.0f', millis + ARGV[2]))
if call('HEXISTS', 'updated') == 0 then call('PEXPIRE', ARGV[3]) end
return 1
""")

# ARGV: fence, '1' to delete the session
RELEASE = script("""
if call('HGET', 'fence') ~= ARGV[1] then return 0 end
if ARGV[2] == '1' or call('HEXISTS', 'updated') == 0 then
    redis.call('DEL', h)
else
    call('HDEL', 'fence', 'holder', 'expires')
end
return 1
""")

# Returns false for a session that does not exist.
STATE = script("return call('EXISTS') == 1 and state()")

# ARGV: fence, last, change, ttl, last_seq, keep, archive, covered or '', checkpoint, rows
CHANGE = script("""
if not guard_matches(ARGV[1], ARGV[2]) then return 0 end
local keep, length, size, new = tonumber(ARGV[6]), number_of('length'), 0, {}
for i = 10, #ARGV do
    local seq = seq_of(ARGV[i])
    local index = index_of(seq)
    if index and index < keep then return 3 end
    new[seq] = true
end
for index = keep, length - 1 do
    local row = call('HGET', 'e:' .. index) or ''
    local seq = seq_of(row)
    if ARGV[7] == '1' and row ~= '' and not new[seq] then archive(row) end
    call('HDEL', 'e:' .. index, 's:' .. seq)
    size = size - #row
end
for i = 10, #ARGV do
    put(keep + i - 10, ARGV[i])
    size = size + #ARGV[i]
end
call('HSET', 'last_seq', ARGV[5], 'length', keep + #ARGV - 9)
call('HINCRBY', 'size', size)
if number_of('covered') > keep then call('HDEL', 'covered', 'cp') end
if ARGV[8] ~= '' then call('HSET', 'covered', ARGV[8], 'cp', ARGV[9]) end
changed(ARGV[3], ARGV[4], keep < length)
return 1
""")

# ARGV: fence, last, change, ttl, rows
REWRITE = script("""
if not guard_matches(ARGV[1], ARGV[2]) then return 0 end
local other, new = false, {}
local function message_of(row) return string.sub(row, (string.find(row, '\\n', 1, true) or 0) + 1) end
-- Returns by how many bytes the row has grown.
local function exchange(field)
    local old = call('HGET', field)
    local row = old and new[seq_of(old)]
    if not row then return 0 end
    call('HSET', field, row)
    if message_of(old) ~= message_of(row) then other = true end
    return #row - #old
end
for i = 5, #ARGV do new[seq_of(ARGV[i])] = ARGV[i] end
for seq in pairs(new) do
    local index = index_of(seq)
    if index then call('HINCRBY', 'size', exchange('e:' .. index)) end
end
for number = 0, number_of('archived') - 1 do exchange('a:' .. number) end
if other then call('HDEL', 'covered', 'cp') end
changed(ARGV[3], ARGV[4], true)
return 1
""")

# Returns covered, data
LOAD_CHECKPOINT = script("""
local found = call('HMGET', 'covered', 'cp')
if not found[1] or tonumber(found[1]) > number_of('length') then return {false, false} end
return found
""")

# ARGV: kind, first index, index after the last. Returns shape and rows.
READ = script("""
local rows = {}
for index = tonumber(ARGV[2]), ARGV[3] - 1 do rows[#rows + 1] = call('HGET', ARGV[1] .. index) end
return {call('HGET', 'shape') or '', rows}
""")

# ARGV: seqs. Returns index, row, index, row, …
FIND = script("""
local found = {}
for _, seq in ipairs(ARGV) do
    local index = index_of(seq)
    if index then
        found[#found + 1] = index
        found[#found + 1] = call('HGET', 'e:' .. index)
    end
end
return found
""")
