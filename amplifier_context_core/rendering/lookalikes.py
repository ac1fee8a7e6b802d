"""Look-alike characters, mapped to the plain letters that they read as.

A tag in full-width or Greek letters, with zero-width characters, or in brackets of another script reads like the plain
one. `plain` maps such characters, in the sense of UTS #39 (Unicode Security Mechanisms), for the letters of our tags.

Sources of the tables: confusables.txt of UTS #39, without what NFKD maps by itself; for brackets, all characters that
the Unicode Character Database names left angle, square, corner, lenticular or tortoise shell bracket.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_LETTERS = {
    "/": "1735 2041 2044 2215 2571 27CB 29F8 2CC6 3033 30CE 31D3 4E3F 1D23A",
    "_": "07FA",
    "c": "03F2 03F9 0421 0441 13DF 1D04 2CA4 2CA5 A4DA ABAF 102A2 10302 10415 1043D 1051C 118E9 118F2 1F74C",
    "d": "0501 13A0 13E7 146F 15DE 15EA A4D2 A4D3",
    "e": "0395 0415 0435 04BD 13AC 212E 22FF 2D39 A4F0 AB32 10286 118A6 118AE",
    "n": "039D 0578 057C 2C9A A4E0 10513",
    "o": "039F 03BF 03C3 041E 043E 0555 0585 06F5 0966 09E6 0A66 0AE6 0B20 0B66 0BE6 0C02 0C66 0C82 0CE6 0D02 0D20 "
    "0D66 0D82 0E50 0ED0 101D 1040 10FF 12D0 1D0F 1D11 2C9E 2C9F 2D54 3007 A4F3 AB3D 10292 102AB 10404 1042C 104C2 "
    "104EA 10516 114D0 118B5 118C8 118D7 118E0",
    "p": "03A1 03C1 0420 0440 13E2 146D 2374 2CA2 2CA3 A4D1 10295",
    "q": "051B 0563 0566 2D55",
    "r": "01A6 0433 13A1 13D2 1587 1D26 2C85 A4E3 AB47 AB48 AB81 104B4 16F35 1D216",
    "t": "03A4 0422 13A2 22A4 27D9 2CA6 A4D4 10297 102B1 10315 118BC 16F0A 1F768",
    "u": "028B 03C5 054D 057D 1200 144C 1D1C 222A 22C3 A4F4 A79F AB4E AB52 104CE 104F6 118B8 118D8 16F42",
    "x": "00D7 03A7 0425 0445 1541 157D 166D 166E 16B7 2573 292B 292C 2A2F 2CAC 2D5D A4EB A7B3 10290 102B4 10317 10322 "
    "10527 118EC",
}
_LESS_THAN = "003C 02C2 1438 16B2 2039 276E FE64 FF1C 1D236"
_OPENING = (
    "005B 00AB 2045 226A 22D6 2329 2770 2772 276C 27E6 27E8 27EA 27EC 2987 2989 298B 298D 298F 2991 2993 2995 2997 "
    "29FC 2AA1 2AF7 2E22 2E24 2E55 2E57 3008 300A 300C 300E 3010 3014 3016 3018 301A FE17 FE39 FE3B FE3D FE3F FE41 "
    "FE43 FE47 FE5D FF3B FF62"
)
_LOW_LINE = "005F 07FA FE33 FE34 FE4D FE4E FE4F FF3F"
# What UCD calls Default_Ignorable_Code_Point and no category says: letters and marks without a shape.
_SHAPELESS = frozenset("\u115f\u1160\u17b4\u17b5\u3164\uffa0")
_SHAPELESS_KINDS = frozenset({"Cf", "Cc", "Mn", "Me", "Zs", "Zl", "Zp"})


def _characters(codes: str) -> frozenset[str]:
    return frozenset(chr(int(code, 16)) for code in codes.split())


def _any_of(characters: frozenset[str]) -> re.Pattern[str]:
    return re.compile(f"[{re.escape(''.join(sorted(characters)))}]")


OPENING = _characters(_LESS_THAN) | _characters(_OPENING)  # brackets that read like ``<`` or ``[``
ANY_OPENING = _any_of(OPENING)
LESS_THAN = _any_of(_characters(_LESS_THAN))  # the sign, its look-alikes and its compatibility forms
LOW_LINES = "".join(sorted(_characters(_LOW_LINE)))

_LETTER_OF = {character: letter for letter, codes in _LETTERS.items() for character in _characters(codes)}


@lru_cache(maxsize=4_096)
def plain(character: str) -> str:
    """Return the letters that one character reads as, in lower case; empty for white space and invisible characters."""
    if character in _LETTER_OF:
        return _LETTER_OF[character]
    parts = unicodedata.normalize("NFKD", character)
    shaped = (one for one in parts if one not in _SHAPELESS and unicodedata.category(one) not in _SHAPELESS_KINDS)
    return "".join(_LETTER_OF.get(part) or part.casefold() for part in shaped)


def read_word(text: str, place: int, word: str, step: int) -> int | None:
    """Return the index after the last character of a word that begins at `place`; None if the text has another word.

    Args:
        word: plain letters, in the order they are read.
        step: 1 to read forward, -1 to read backward.
    """
    read = 0
    while read < len(word):
        if not 0 <= place < len(text):
            return None
        letters = plain(text[place])[::step]
        if not word.startswith(letters, read):
            return None
        read += len(letters)
        place += step
    return place
