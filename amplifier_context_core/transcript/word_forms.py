"""Forms of English words: what they share before their endings."""

from __future__ import annotations

import re
from functools import lru_cache

_LEAST = 3  # characters of a stem
_VOWEL = re.compile("[^\x00-\x7f]|[aeiouy]")
_VOWELS = "aeiou"
_PLURALS = (("ies", "y"), ("ied", "y"), ("s", ""))
# Endings with the fewest characters that a word has before them.
_ENDINGS = (
    *(("ation", 4), ("ment", 4), ("ness", 4), ("ingly", 4), ("ing", 3), ("ed", 3), ("est", 4), ("er", 4), ("ion", 4)),
    *(("ly", 4), ("able", 4), ("ive", 5), ("ful", 4)),
)


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return what the forms of a word share: a rough stem, for English; other words mostly stay whole."""
    if len(word) <= _LEAST or not word.isalpha():
        return word
    for plural, single in _PLURALS:
        left = word[: -len(plural)]
        is_ending = word.endswith(plural) and len(left + single) >= _LEAST and not word.endswith("ss")
        if is_ending and not (single and left[-1] in _VOWELS):
            word = left + single
            break
    for ending, least in _ENDINGS:
        left = word[: -len(ending)]
        if word.endswith(ending) and len(left) >= least and _VOWEL.search(left) and not word.endswith("eed"):
            word = left
            break
    if word.endswith(("at", "ate")) and len(word.rstrip("e")) - 2 > _LEAST:
        word = word.rstrip("e")[:-2]
    if word.endswith(("e", "y")) and len(word) > _LEAST:
        word = word[:-1] + ("i" if word.endswith("y") else "")
    if len(word) > _LEAST and word[-1] == word[-2] and (word[-1] not in "ls" or (word[-1] == "l" and len(word) > 5)):
        word = word[:-1]
    return word


def begins(stemmed: str) -> str:
    """Return what each word with a stem begins with: the stem, without an end that is `y` or `i` by the form."""
    if len(stemmed) <= _LEAST:  # `try`, `tried`; but not `day`, `api`
        return stemmed[:-1] if len(stemmed) == _LEAST and stemmed[-1] == "y" and stemmed[-2] not in _VOWELS else stemmed
    return stemmed.removesuffix("i")
