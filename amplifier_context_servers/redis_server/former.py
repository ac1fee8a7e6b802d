"""Sessions as they were kept up to commit 37ba2a6: in six keys, from which a script makes the one hash.

The keys are ``{prefix:SESSION}:meta`` (a hash), `entries`, `archive` and `damaged` (lists of rows), `places` (a hash
from seq to index), `checkpoint`, and `staged` (rows of an interrupted change). The first call that meets them carries
them over, but for damaged rows. They are then gone: a process of that version finds that its lease is lost.
"""

from __future__ import annotations

from .scripts import script

NAMES = ("meta", "entries", "archive", "damaged", "checkpoint", "places", "staged")

IN_USE, CARRIED_OVER, TOO_OLD = 0, 1, 2
"""Replies of `CARRY_OVER`, with the holder of the session, or with the number of rows that it should hold."""

CARRY_OVER = script(
    """
local meta, entries, former_archive, checkpoint = KEYS[2], KEYS[3], KEYS[4], KEYS[6]
local found = redis.call('HMGET', meta, 'fence', 'expires', 'holder', 'updated', 'length', 'covered')
if found[1] and tonumber(found[2]) > millis then return {0, found[3]} end
if found[4] and not found[5] then return {2, ''} end
if found[4] and call('EXISTS') == 0 then
    for _, field in ipairs({'change', 'shape', 'last_seq', 'size', 'updated'}) do
        local value = redis.call('HGET', meta, field)
        if value then call('HSET', field, value) end
    end
    local function move(list, use)
        local length = redis.call('LLEN', list)
        for at = 0, length - 1, 500 do
            for i, row in ipairs(redis.call('LRANGE', list, at, at + 499)) do use(at + i - 1, row) end
        end
        return length
    end
    local length = move(entries, put)
    call('HSET', 'length', length)
    move(former_archive, function(_, row) archive(row) end)
    local data = redis.call('GET', checkpoint)
    if found[6] and data and tonumber(found[6]) <= length then call('HSET', 'covered', found[6], 'cp', data) end
end
redis.call('DEL', unpack(KEYS, 2))
return {1, found[5] or '0'}
""",
    of_former=True,
)
