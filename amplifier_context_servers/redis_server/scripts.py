"""The scripts in Lua that read and change a session in Redis, each atomic, and the layout of a session.

A session is one hash, ``{prefix:SESSION}:session``: it is there or it is gone, never in part. Its fields:

- `change`: the revision of the last change, and `shape` that of the last one that altered earlier rows.
- `length`, `archived`, `damaged`: numbers of rows. `last_seq`, `size` (bytes) and `updated` (microseconds; absent if
  nothing was ever written) describe the history. `cp` is the checkpoint, and `covered` how much it covers.
- `fence` (its token), `holder` and `expires` (milliseconds): the lease.
- ``e:INDEX``: a row of the history. ``a:NUMBER``: one of the archive. ``d:NUMBER``: one that a former version found
  damaged.
- ``s:SEQ``: the index of a row whose index is not its seq - 1.

A row is ``seq turn tokens extra``, a line end, and the message; all JSON is without raw line ends. The braces are a
hash tag: a cluster keeps all keys of a session on one node, those of its former layout too.

A script that failed half-way would leave half of a change. So each script checks everything before it writes: first
the guard (fence and last revision), then the rest. After that it runs only commands that cannot fail. All times are
the server's.
"""

from __future__ import annotations

import hashlib

_PRELUDE = """
if redis.replicate_commands then pcall(redis.replicate_commands) end
local h = KEYS[1]
local time = redis.call('TIME')
local micros = time[1] .. string.format('%06d', time[2])
local millis = time[1] * 1000 + math.floor(time[2] / 1000)
local CHUNK = 500  -- unpack has a limit

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

local function fields(kind, first, last)
    local found = {}
    for i = tonumber(first), last do found[#found + 1] = kind .. i end
    return found
end

-- Passes the rows from `first` up to `stop` (excluded) to `use` in chunks, with the index of the first one.
local function each(kind, first, stop, use)
    for at = first, stop - 1, CHUNK do
        use(call('HMGET', unpack(fields(kind, at, math.min(at + CHUNK, stop) - 1))), at)
    end
end

-- Puts rows at the end of a kind of rows.
local function put(kind, rows, start)
    local pairs_ = {}
    for i, row in ipairs(rows) do
        pairs_[#pairs_ + 1] = kind .. (start + i - 1)
        pairs_[#pairs_ + 1] = row
        local seq = seq_of(row)
        if kind == 'e:' and tonumber(seq) ~= start + i then
            pairs_[#pairs_ + 1] = 's:' .. seq
            pairs_[#pairs_ + 1] = start + i - 1
        end
    end
    if #pairs_ > 0 then call('HSET', unpack(pairs_)) end
end

-- Takes the rows from `keep` on out of the history, and passes them to `use`. Returns their bytes.
local function cut(keep, use)
    local size, stop = 0, number_of('length')
    each('e:', keep, stop, function(rows)
        local seqs = {}
        for _, row in ipairs(rows) do
            size = size + #(row or '')
            seqs[#seqs + 1] = 's:' .. seq_of(row or '')
        end
        use(rows)
        call('HDEL', unpack(seqs))
    end)
    for at = keep, stop - 1, CHUNK do call('HDEL', unpack(fields('e:', at, math.min(at + CHUNK, stop) - 1))) end
    return size
end

local function index_of(seq)
    local index = call('HGET', 's:' .. seq)
    if index then return tonumber(index) end
    index = tonumber(seq) - 1
    local row = call('HGET', 'e:' .. index)
    return row and seq_of(row) == seq and index
end

-- Passes the rows of a change, arguments from `first` on, to `use` in chunks.
local function each_new(first, use)
    for at = first, #ARGV, CHUNK do
        local rows = {}
        for i = at, math.min(at + CHUNK - 1, #ARGV) do rows[#rows + 1] = ARGV[i] end
        use(rows)
    end
end

-- True if one of the new seqs is at an index before `keep` already.
local function has_duplicate(first, keep)
    local found = false
    each_new(first, function(rows)
        for _, row in ipairs(rows) do
            local index = index_of(seq_of(row))
            if index and index < keep then found = true end
        end
    end)
    return found
end

-- Puts the new rows at the end of a history of this length.
local function push(first, length, last_seq, removed)
    local size = 0 - removed  -- not -removed: that may be -0, which is no integer for HINCRBY
    each_new(first, function(rows)
        put('e:', rows, length)
        length = length + #rows
        for _, row in ipairs(rows) do size = size + #row end
    end)
    call('HSET', 'last_seq', last_seq, 'length', length)
    call('HINCRBY', 'size', size)
end
"""

_CARRIED_OVER_FIRST = """
if call('EXISTS') == 0 and redis.call('EXISTS', KEYS[2]) == 1 then return 'FORMER' end
"""

REFUSED, APPLIED, APPLIED_OTHER, DUPLICATE_SEQ = 0, 1, 2, 3
"""Replies of scripts that change something.

APPLIED_OTHER: messages differ from the former ones. DUPLICATE_SEQ: the history holds one of the seqs already.
"""
FORMER = b"FORMER"  # the reply of any script for a session that is still in the former layout, see `former`

SOURCES: dict[str, str] = {}
"""Of each script, by the SHA-1 under which the server knows it once it has run."""


def script(body: str, *, of_former: bool = False) -> str:
    """Return the SHA-1 of a script. Unless it is one for sessions in the former layout, it refuses those."""
    source = _PRELUDE + ("" if of_former else _CARRIED_OVER_FIRST) + body
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    SOURCES[sha] = source
    return sha


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
local keep, staying, removed = tonumber(ARGV[6]), {}, 0
local is_cut = keep < number_of('length')
if has_duplicate(10, keep) then return 3 end
if is_cut then
    each_new(10, function(rows) for _, row in ipairs(rows) do staying[seq_of(row)] = true end end)
    removed = cut(keep, function(rows)
        local leaving = {}
        for _, row in ipairs(rows) do
            if row and not staying[seq_of(row)] then leaving[#leaving + 1] = row end
        end
        if ARGV[7] == '1' and #leaving > 0 then
            put('a:', leaving, number_of('archived'))
            call('HINCRBY', 'archived', #leaving)
        end
    end)
    if number_of('covered') > keep then call('HDEL', 'covered', 'cp') end
end
push(10, keep, ARGV[5], removed)
if ARGV[8] ~= '' then call('HSET', 'covered', ARGV[8], 'cp', ARGV[9]) end
changed(ARGV[3], ARGV[4], is_cut)
return 1
""")

# ARGV: fence, last, change, ttl, rows
REWRITE = script("""
if not guard_matches(ARGV[1], ARGV[2]) then return 0 end
local other, size, new, known = false, 0, {}, {}
local function message_of(row) return string.sub(row, (string.find(row, '\\n', 1, true) or 0) + 1) end
local function exchange(field, old, row)
    call('HSET', field, row)
    known[seq_of(row)] = true
    if message_of(old) ~= message_of(row) then other = true end
    return #row - #old
end
each_new(5, function(rows)
    for _, row in ipairs(rows) do
        new[seq_of(row)] = row
        local index = index_of(seq_of(row))
        if index then size = size + exchange('e:' .. index, call('HGET', 'e:' .. index), row) end
    end
end)
each('a:', 0, number_of('archived'), function(rows, at)
    for i, old in ipairs(rows) do
        local row = old and new[seq_of(old)]
        if row then exchange('a:' .. (at + i - 1), old, row) end
    end
end)
local unknown, damaged = next(new) == nil, number_of('damaged')
for seq in pairs(new) do unknown = unknown or not known[seq] end
if unknown and damaged > 0 then other = true end
if other then
    call('HDEL', 'covered', 'cp', 'damaged')
    for i = 0, damaged - 1 do call('HDEL', 'd:' .. i) end
end
call('HINCRBY', 'size', size)
changed(ARGV[3], ARGV[4], true)
return other and 2 or 1
""")

# Returns covered, data
LOAD_CHECKPOINT = script("""
local found = call('HMGET', 'covered', 'cp')
if not found[1] or tonumber(found[1]) > number_of('length') then return {false, false} end
return found
""")

# ARGV: kind, first index, index after the last. Returns shape and rows.
READ = script("""
return {call('HGET', 'shape') or '', call('HMGET', unpack(fields(ARGV[1], ARGV[2], ARGV[3] - 1)))}
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
