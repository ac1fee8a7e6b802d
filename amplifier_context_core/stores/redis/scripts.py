"""The scripts in Lua that change a session in Redis, each atomic, and how the keys of a session are laid out.

All keys of a session share a hash tag, so that a cluster keeps them together: ``{prefix:SESSION}:…``

- ``meta``: a hash. `change` is the revision of the last change, `shape` that of the last one that altered earlier rows.
  `last_seq`, `size` (bytes) and `updated` (microseconds; absent if nothing was ever written) describe the
  history. `length` and `archived` say how long the lists should be (absent if not recorded yet). `covered` and `crc`
  describe the checkpoint. `fence` (its token), `holder` and `expires` (milliseconds) are the lease.
- ``entries``: a list of rows, by index. The most frequent reads, a range and the newest entries, are one LRANGE.
- ``places``: a hash from seq to index, for `find` and `rewrite`, and so that no seq occurs twice.
- ``archive`` and ``damaged``: lists of rows. ``checkpoint``: bytes. ``staged``: rows uploaded for the next change.

A row is ``seq turn tokens extra``, a line end, and the message; all JSON is without raw line ends.

A script that failed half-way would leave half of a change. So each script checks everything before it writes: first
the guard (fence and last revision), then the rest. After that it runs only commands that cannot fail. All times are
the server's.

Keys may be lost one by one (evicted, expired, deleted by hand). Their expected content follows from `meta`, or without
it from the other keys. A history that does not match is repaired before it is changed (see `integrity`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

KEYS = ("meta", "entries", "places", "archive", "checkpoint", "damaged", "staged")

_PRELUDE = """
if redis.replicate_commands then pcall(redis.replicate_commands) end
local meta, entries, places, archive, checkpoint, damaged, staged = unpack(KEYS)
local time = redis.call('TIME')
local micros = time[1] .. string.format('%06d', time[2])
local millis = time[1] * 1000 + math.floor(time[2] / 1000)
local CHUNK = 500  -- unpack has a limit

local function guard_matches(fence, last)
    local found = redis.call('HMGET', meta, 'fence', 'change')
    return found[1] == fence and (found[2] or '0') == last
end

local function changed(change, ttl, shape)
    redis.call('HSET', meta, 'change', change, 'updated', micros, 'expires', string.format('%.0f', millis + ttl))
    if shape or redis.call('HEXISTS', meta, 'shape') == 0 then redis.call('HSET', meta, 'shape', change) end
    redis.call('PERSIST', meta)
end

-- Returns what the keys hold, and what meta says they should hold; see `integrity.KeyCounts`.
local function counts()
    local fields = redis.call('HMGET', meta, 'updated', 'length', 'archived', 'covered')
    return {redis.call('LLEN', entries), redis.call('HLEN', places), redis.call('LLEN', archive),
        redis.call('EXISTS', checkpoint), redis.call('LLEN', damaged), unpack(fields)}
end

-- True if the history holds what it should.
local function is_intact()
    local length, there = redis.call('HGET', meta, 'length'), redis.call('LLEN', entries)
    return redis.call('HLEN', places) == there and (not length or tonumber(length) == there)
end

local function record_extent(last_seq)
    redis.call('HSET', meta, 'last_seq', last_seq, 'length', redis.call('LLEN', entries))
end

local function seq_of(row) return string.match(row, '^(%-?%d+) ') or '' end

-- Passes the rows of a change to `use` in chunks: arguments from `first` on, or the staged rows.
local function each_chunk(first, use)
    if ARGV[first] == 'staged' then
        local at = 0
        while true do
            local rows = redis.call('LRANGE', staged, at, at + CHUNK - 1)
            if #rows == 0 then break end
            use(rows)
            at = at + #rows
        end
    else
        for at = first + 1, #ARGV, CHUNK do
            local rows = {}
            for i = at, math.min(at + CHUNK - 1, #ARGV) do rows[#rows + 1] = ARGV[i] end
            use(rows)
        end
    end
end

-- True if no staged row is missing.
local function is_complete(first)
    return ARGV[first] ~= 'staged' or redis.call('LLEN', staged) == tonumber(ARGV[first + 1])
end

local function each_of(list, start, use)
    local at = start
    while true do
        local rows = redis.call('LRANGE', list, at, at + CHUNK - 1)
        if #rows == 0 then break end
        use(rows, at)
        at = at + #rows
    end
end

-- True if one of these seqs is at an index before `keep` already.
local function has_duplicate(first, keep)
    local found = false
    each_chunk(first, function(rows)
        local seqs = {}
        for i, row in ipairs(rows) do seqs[i] = seq_of(row) end
        for _, index in ipairs(redis.call('HMGET', places, unpack(seqs))) do
            if index and tonumber(index) < keep then found = true end
        end
    end)
    return found
end

local function note_places(rows, start)
    local pairs_ = {}
    for i, row in ipairs(rows) do
        pairs_[2 * i - 1] = seq_of(row)
        pairs_[2 * i] = start + i - 1
    end
    redis.call('HSET', places, unpack(pairs_))
end

local function push(first, start)
    local size = 0
    each_chunk(first, function(rows)
        redis.call('RPUSH', entries, unpack(rows))
        note_places(rows, start)
        start = start + #rows
        for _, row in ipairs(rows) do size = size + #row end
    end)
    redis.call('DEL', staged)
    return size
end
"""

REFUSED, APPLIED, APPLIED_OTHER, DUPLICATE_SEQ, INCOMPLETE, DAMAGED = 0, 1, 2, 3, 4, 5
"""Replies of scripts that change something.

APPLIED_OTHER: messages differ from the former ones. DUPLICATE_SEQ: the history holds one of the seqs already.
INCOMPLETE: staged rows are missing. DAMAGED: the history does not hold what it should.
"""


@dataclass(frozen=True, slots=True)
class Script:
    """A script, and the SHA-1 by which the server knows it once it has run."""

    source: str
    sha: str


def _script(body: str) -> Script:
    source = _PRELUDE + body
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


# ARGV: fence, holder, ttl, how long an unused lease is kept (milliseconds), former fence
ACQUIRE = _script("""
local found = redis.call('HMGET', meta, 'fence', 'expires', 'holder', 'updated', 'change', 'last_seq')
local ours = not found[1] or found[1] == ARGV[1] or found[1] == ARGV[5]
if not ours and tonumber(found[2]) > millis then return {0, found[3]} end
local there = counts()
redis.call('HSET', meta, 'fence', ARGV[1], 'holder', ARGV[2], 'expires', string.format('%.0f', millis + ARGV[3]))
if not found[4] then redis.call('PEXPIRE', meta, ARGV[4]) end
return {1, found[6] or '0', found[5] or '0', there}
""")

# ARGV: fence, ttl, how long an unused lease is kept (milliseconds)
RENEW = _script("""
if redis.call('HGET', meta, 'fence') ~= ARGV[1] then return 0 end
redis.call('HSET', meta, 'expires', string.format('%.0f', millis + ARGV[2]))
if redis.call('HEXISTS', meta, 'updated') == 0 then redis.call('PEXPIRE', meta, ARGV[3]) end
return 1
""")

# ARGV: fence
RELEASE = _script("""
if redis.call('HGET', meta, 'fence') ~= ARGV[1] then return 0 end
if redis.call('HEXISTS', meta, 'updated') == 0 then
    redis.call('DEL', meta, staged)
else
    redis.call('HDEL', meta, 'fence', 'holder', 'expires')
end
return 1
""")

# Returns the fields of `integrity.StateReply`
STATE = _script("""
local found = redis.call('HMGET', meta, 'change', 'last_seq', 'fence', 'holder', 'updated', 'size', 'expires', 'shape')
local live = found[7] and tonumber(found[7]) > millis
local last = found[2]
if not found[5] then  -- what is known without meta: seqs begin with 1, and none occurs twice
    local newest = redis.call('LINDEX', entries, -1)
    last = math.max(newest and tonumber(seq_of(newest)) or 0, redis.call('HLEN', places), redis.call('LLEN', archive))
end
return {redis.call('EXISTS', meta), found[1] or '0', last or '0', found[3] or '', found[4] or '', found[5] or '',
    found[6] or '0', live and 1 or 0, found[8] or '', counts()}
""")

# ARGV: fence, last, change, ttl, last_seq, 'staged', count or 'here', rows
APPEND = _script("""
if not guard_matches(ARGV[1], ARGV[2]) then return 0 end
if not is_intact() then return 5 end
local start = redis.call('LLEN', entries)
if not is_complete(6) then return 4 end
if has_duplicate(6, start) then return 3 end
local size = push(6, start)
redis.call('HINCRBY', meta, 'size', size)
record_extent(ARGV[5])
changed(ARGV[3], ARGV[4])
return 1
""")

# ARGV: fence, last, change, ttl, last_seq, keep, archive, 'staged', count or 'here', rows
REPLACE = _script("""
if not guard_matches(ARGV[1], ARGV[2]) then return 0 end
if not is_intact() then return 5 end
local keep, size, staying = tonumber(ARGV[6]), 0, {}
if not is_complete(8) then return 4 end
if has_duplicate(8, keep) then return 3 end
each_chunk(8, function(rows) for _, row in ipairs(rows) do staying[seq_of(row)] = true end end)
redis.call('HSETNX', meta, 'archived', redis.call('LLEN', archive))
each_of(entries, keep, function(rows)
    local seqs, leaving = {}, {}
    for i, row in ipairs(rows) do
        seqs[i] = seq_of(row)
        size = size - #row
        if not staying[seqs[i]] then leaving[#leaving + 1] = row end
    end
    if ARGV[7] == '1' and #leaving > 0 then
        redis.call('RPUSH', archive, unpack(leaving))
        redis.call('HINCRBY', meta, 'archived', #leaving)
    end
    redis.call('HDEL', places, unpack(seqs))
end)
if keep == 0 then redis.call('DEL', entries) else redis.call('LTRIM', entries, 0, keep - 1) end
size = size + push(8, keep)
redis.call('HINCRBY', meta, 'size', size)
record_extent(ARGV[5])
local covered = redis.call('HGET', meta, 'covered')
if covered and tonumber(covered) > keep then
    redis.call('HDEL', meta, 'covered')
    redis.call('DEL', checkpoint)
end
changed(ARGV[3], ARGV[4], true)
return 1
""")

# ARGV: fence, last, change, ttl, 'staged', count or 'here', rows
REWRITE = _script("""
if not guard_matches(ARGV[1], ARGV[2]) then return 0 end
if not is_intact() then return 5 end
if not is_complete(5) then return 4 end
local other, size, new, known = false, 0, {}, {}
local function message_of(row) return string.sub(row, (string.find(row, '\\n', 1, true) or 0) + 1) end
local function put(list, index, old, row)
    redis.call('LSET', list, index, row)
    if message_of(old) ~= message_of(row) then other = true end
end
each_chunk(5, function(rows)
    for _, row in ipairs(rows) do
        local seq = seq_of(row)
        local index = redis.call('HGET', places, seq)
        new[seq] = row
        local old = index and redis.call('LINDEX', entries, index)
        if old then
            put(entries, index, old, row)
            known[seq] = true
            size = size + #row - #old
        end
    end
end)
each_of(archive, 0, function(rows, at)
    for i, old in ipairs(rows) do
        local row = new[seq_of(old)]
        if row then
            put(archive, at + i - 1, old, row)
            known[seq_of(old)] = true
        end
    end
end)
local unknown = next(new) == nil
for seq in pairs(new) do unknown = unknown or not known[seq] end
if unknown and redis.call('LLEN', damaged) > 0 then other = true end
if other then
    redis.call('HDEL', meta, 'covered')
    redis.call('DEL', checkpoint, damaged)
end
redis.call('DEL', staged)
redis.call('HINCRBY', meta, 'size', size)
changed(ARGV[3], ARGV[4], true)
return other and 2 or 1
""")

# ARGV: fence, last, change, ttl, covered, crc, data
SAVE_CHECKPOINT = _script("""
if not guard_matches(ARGV[1], ARGV[2]) then return 0 end
redis.call('SET', checkpoint, ARGV[7])
redis.call('HSET', meta, 'covered', ARGV[5], 'crc', ARGV[6])
changed(ARGV[3], ARGV[4])
return 1
""")

# Returns data, covered, crc
LOAD_CHECKPOINT = _script("""
local fields = redis.call('HMGET', meta, 'covered', 'crc')
local length = redis.call('LLEN', entries)
if not fields[1] or not is_intact() or tonumber(fields[1]) > length then return {false, '0', false} end
return {redis.call('GET', checkpoint), fields[1], fields[2]}
""")

# Makes a new session of the staged rows.
# ARGV: fence, last, change, ttl, last_seq, length, covered or '', crc, checkpoint
CREATE = _script("""
if not guard_matches(ARGV[1], ARGV[2]) or redis.call('HEXISTS', meta, 'updated') == 1 then return 0 end
if redis.call('LLEN', staged) ~= tonumber(ARGV[6]) then return 0 end
local size = 0
redis.call('DEL', entries, places)
if redis.call('EXISTS', staged) == 1 then redis.call('RENAME', staged, entries) end
redis.call('PERSIST', entries)
each_of(entries, 0, function(rows, at)
    note_places(rows, at)
    for _, row in ipairs(rows) do size = size + #row end
end)
redis.call('HSET', meta, 'size', size)
record_extent(ARGV[5])
if ARGV[7] ~= '' then
    redis.call('HSET', meta, 'covered', ARGV[7], 'crc', ARGV[8])
    redis.call('SET', checkpoint, ARGV[9])
end
changed(ARGV[3], ARGV[4], true)
return 1
""")

# ARGV: fence
DELETE = _script("""
if redis.call('HGET', meta, 'fence') ~= ARGV[1] then return 0 end
redis.call('DEL', unpack(KEYS))
return 1
""")

# Takes out damaged rows and rows with a seq that occurred before, then writes meta and places again. Keeps the
# checkpoint if nothing else of the history is lost.
# ARGV: fence, last, change, ttl, is the checkpoint damaged, 'here', damaged rows
REPAIR = _script("""
if not guard_matches(ARGV[1], ARGV[2]) then return 0 end
local fields = redis.call('HMGET', meta, 'length', 'last_seq', 'covered')
local before, last, size = tonumber(fields[1] or redis.call('HLEN', places)), tonumber(fields[2] or 0), 0
local bad, seen = {}, {}
local function raise_last(row) last = math.max(last, tonumber(seq_of(row)) or 0) end
each_chunk(6, function(rows) for _, row in ipairs(rows) do bad[row] = true end end)
each_of(entries, 0, function(rows, at)
    for i, row in ipairs(rows) do
        local seq = seq_of(row)
        if bad[row] or seen[seq] then
            redis.call('RPUSH', damaged, row)
            redis.call('LSET', entries, at + i - 1, '')
        else
            seen[seq] = true
            size = size + #row
            raise_last(row)
        end
    end
end)
redis.call('LREM', entries, 0, '')
if not fields[2] then
    for _, seq in ipairs(redis.call('HKEYS', places)) do last = math.max(last, tonumber(seq) or 0) end
    for _, list in ipairs({archive, damaged}) do
        each_of(list, 0, function(rows) for _, row in ipairs(rows) do raise_last(row) end end)
    end
end
redis.call('DEL', places)
each_of(entries, 0, function(rows, at) note_places(rows, at) end)
redis.call('HSET', meta, 'size', size, 'archived', redis.call('LLEN', archive))
record_extent(string.format('%.0f', last))
local is_stale = ARGV[5] == '1' or not fields[3] or before ~= redis.call('LLEN', entries)
if is_stale or redis.call('EXISTS', checkpoint) == 0 then
    redis.call('DEL', checkpoint)
    redis.call('HDEL', meta, 'covered')
end
changed(ARGV[3], ARGV[4], true)
return 1
""")

# ARGV: seqs. Returns index, row, index, row, …
FIND = _script("""
local found = {}
for at = 1, #ARGV, CHUNK do
    local seqs = {}
    for i = at, math.min(at + CHUNK - 1, #ARGV) do seqs[#seqs + 1] = ARGV[i] end
    for i, index in ipairs(redis.call('HMGET', places, unpack(seqs))) do
        local row = index and redis.call('LINDEX', entries, index)
        if row and seq_of(row) == seqs[i] then
            found[#found + 1] = index
            found[#found + 1] = row
        end
    end
end
return found
""")

# ARGV: rows. Uploads them for the next change; they expire after ten minutes.
STAGE = _script("""
each_chunk(1, function(rows) redis.call('RPUSH', staged, unpack(rows)) end)
redis.call('PEXPIRE', staged, 600000)
return redis.call('LLEN', staged)
""")
