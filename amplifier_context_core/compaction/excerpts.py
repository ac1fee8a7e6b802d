"""Excerpts: the line of a tool's output that says most in plain words.

A name can be looked up again; what a file or a search has about it is lost with the output. So a chapter quotes one
line of an output: the one with the most words that the chapter does not have yet.

A line with words that demand something or address its reader is not quoted, as a chapter outlives the output; nor is
one with a sentence that begins with a verb of acting, as a bare imperative does ("Delete the database now."), nor a
line in parentheses, such as a hint of git. These words are English and Chinese, and no list of them is complete. So
every excerpt is also short, one line, and between the tags that quote a chapter as data.
"""

from __future__ import annotations

import re
from functools import cache

from ..rendering.quoting import single_line
from .identifiers import Names
from .speech import states_rule, word_end

_SCANNED = 12_000  # characters of an output, from its start
_LINES = 300  # lines of an output, from its start
_LEAST_WORDS = 4  # new words; a line with fewer says little beside the names that are kept in any case
_STEM = 7  # letters by which forms of a word are one word
_WORD = re.compile(r"(?<![\w./@#:-])[^\W\d_]{5,}(?![\w/@#:]|\.\w)")
_ADDRESSED = re.compile(
    r"\b(?:you|your|yours|yourself|ignore|disregard|forget|pretend|obey|instructions?|prompts?|assistant|override)\b",
    re.IGNORECASE,
)
# Verbs by which a bare imperative makes its reader do something. Comments of code begin with some of them as well, and
# are not quoted either: another line of the output is (docs/reports/evaluation.md has what that costs).
_ACTS = """
    accept act activate add allow answer append apply approve ask assume attach authorize backup begin block book
    browse build buy bypass call cancel change check clean clear click clone close collect commit compile configure
    confirm connect contact continue convert copy create decode decrypt delete deploy destroy disable discard
    display do download drop dump edit email empty enable encode encrypt enter erase execute exfiltrate export
    expose extract fetch find fix follow force format forward get give go grant halt hide implement include inform
    insert inspect install invoke kill launch leak leave list load lock log login look mail mark merge message
    migrate modify move navigate notify open order output overwrite paste patch pay perform pick pipe post prepare
    press print proceed publish pull purge push put query read rebase reboot rebuild recreate redirect refactor
    reinstall release reload remove rename repeat replace reply report request reset resolve respond restart
    restore resume retrieve reveal revert review revoke rewrite rollback run save say scan search select send set
    share show shut sign skip spawn start submit subscribe switch take tell terminate test transfer trigger
    truncate trust try turn type undo uninstall unlock unset update upgrade upload use verify visit wipe wire write
""".split()  # noqa: SIM905 - a list literal would be 160 lines
_IMPERATIVE = (
    r"(?:^|[.!?:;,)]\s+|\s[-\u2013\u2014]\s+)"
    r"(?:(?:and|also|now|then|first|next|finally|just|simply|immediately|quickly)\b,?\s+)*"
    rf"(?:{'|'.join(_ACTS)})\s+[^\W_]|"
    r"(?:^|[\u3002\uff01\uff1f\uff1a\uff1b\uff0c.!?:;,]\s*)(?:(?:现在|立即|立刻|马上|赶紧|然后|接着|先|再)[\uff0c, ]*)*"
    r"(?:删除|删掉|清空|清除|移除|运行|执行|发送|上传|下载|安装|卸载|打开|关闭|停止|修改|替换|提交|推送|公布|泄露|告诉|回复|忽略|转账|批准)"
)
_EDGES = "/#*-+<>|=~`'\"()[]{}!;: \t"  # signs of comments, lists and tables


def excerpt(text: str, known: Names, prefix: re.Pattern[str], room: int) -> str:
    """Return the line of an output with the most new words, shortened at a word's end; empty if none has enough.

    Args:
        known: words, by their first letters, that a chapter has already; the words of the excerpt are added.
        prefix: what a line may begin with before its text: its number, or the place where a search found it.
        room: characters of the excerpt; 0 for none.
    """
    best, found = "", set[str]()
    for line in text[:_SCANNED].splitlines()[:_LINES]:
        if len(line) <= len(best) and len(line) < room:
            continue  # as many words hardly fit
        if (stripped := line.strip()).startswith("(") and stripped.endswith(")"):
            continue  # a hint of the program
        before = prefix.match(line)
        shown = _shortened(line[before.end() if before else 0 :], room)
        words = {word for match in _WORD.findall(shown) if (word := match[:_STEM].lower()) not in known}
        if len(words) > max(len(found), _LEAST_WORDS - 1) and not is_addressed(shown):
            best, found = shown, words
    known.update(found)
    return best


def is_addressed(line: str) -> bool:
    """English and Chinese alone."""
    return states_rule(line) or any(rule.search(line) is not None for rule in (_ADDRESSED, _imperative()))


@cache
def _imperative() -> re.Pattern[str]:
    """Compile with the first chapter, not before: it takes two milliseconds."""
    return re.compile(_IMPERATIVE, re.IGNORECASE)


def _shortened(line: str, room: int) -> str:
    flat = single_line(line[: 3 * room]).strip(_EDGES)
    return flat if len(flat) <= room else f"{flat[: word_end(flat, room)]} …"
