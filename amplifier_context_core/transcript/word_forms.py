"""Forms of English words: their endings, and what no ending shows, as go and went, colour and color, three and 3."""

from __future__ import annotations

import re
from functools import lru_cache

# Each group is one word. Forms that are more often another word are left out, such as `left` and `may`.
_GROUPS = """
arise arose arisen, awake awoke awoken, bear bore borne, beat beaten, become became, begin began begun, bend bent,
bite bit bitten, blow blew blown, break broke broken, bring brought, build built, burn burnt, buy bought, catch
caught, choose chose chosen, come came, creep crept, deal dealt, dig dug, draw drew drawn, dream dreamt, drink drank
drunk, drive drove driven, eat ate eaten, fall fell fallen, feed fed, feel felt, fight fought, find found, flee fled,
fly flew flown flies, forbid forbade forbidden, forget forgot forgotten, forgive forgave forgiven, freeze froze
frozen, get got gotten, give gave given, go went gone goes, grow grew grown, hang hung, hear heard, hide hid hidden,
hold held, keep kept, know knew known, lead led, lean leant, learn learnt, lend lent, lose lost, make made, mean
meant, meet met, mistake mistook mistaken, overcome overcame, pay paid, prove proven, ride rode ridden, ring rang
rung, rise rose risen, run ran, say said, see saw seen, seek sought, sell sold, send sent, sew sewn, shake shook
shaken, shine shone, shoot shot, show shown, shrink shrank shrunk, sing sang sung, sink sank sunk, sit sat, sleep
slept, slide slid, speak spoke spoken, spell spelt, spend spent, spill spilt, spin spun, spring sprang sprung, stand
stood, steal stole stolen, stick stuck, strike struck, swear swore sworn, sweep swept, swim swam swum, swing swung,
take took taken, teach taught, tear tore torn, tell told, think thought, throw threw thrown, undergo underwent,
understand understood, wake woke woken, wear wore worn, weave wove woven, weep wept, win won, withdraw withdrew
withdrawn, write wrote written, cry cries cried, dry dries dried, fry fries fried, ply plies plied, pry pries pried,
shy shies shied, sky skies, spy spies spied, try tries tried, die died dying, lie lay lain lying, tie tied
tying, child children, foot feet, goose geese, knife knives, leaf leaves, life lives, loaf loaves, man men, mouse
mice, person people, shelf shelves, thief thieves, tooth teeth, wife wives, wolf wolves, woman women, half halves,
analysis analyses, crisis crises, criterion criteria, hypothesis hypotheses, index indices indexes, matrix matrices,
choose choice, decide decision, lose loss, sell sale, marry marriage, arrive arrival, please pleasure, succeed success,
fly flight, grow growth, know knowledge,
advise advice, practise practice, license licence, defense defence, offense offence, center centre, theater theatre,
meter metre, liter litre, fiber fibre, catalog catalogue, dialog dialogue, gray grey, program programme, check cheque,
tire tyre, aluminum aluminium, airplane aeroplane, jewelry jewellery, pajamas pyjamas, mom mum, mommy mummy, cozy
cosy, skeptical sceptical, traveled travelled, traveling travelling, traveler traveller, canceled cancelled, canceling
cancelling, labeled labelled, labeling labelling, modeled modelled, modeling modelling, fulfill fulfil, enroll enrol,
zero 0, one 1, two 2, three 3, four 4, five 5, six 6, seven 7, eight 8, nine 9, ten 10, eleven 11, twelve 12, thirteen
13, fourteen 14, fifteen 15, sixteen 16, seventeen 17, eighteen 18, nineteen 19, twenty 20, thirty 30, forty 40, fifty
50, sixty 60, seventy 70, eighty 80, ninety 90, first 1st, second 2nd, third 3rd, fourth 4th, fifth 5th, january jan,
february feb, august aug, september sept sep, october oct, november nov, december dec, monday mon, tuesday tue tues,
wednesday wed, thursday thu thurs, friday fri, saturday sat, sunday sun
"""
_OUR = re.compile(r"(?<=[bdlnpv])ou?r(?=(?:s|ed|ing|ite|ites|ful|able|hood|hoods)?$)")
_ISE = re.compile(r"(?<=[a-z]{3}i)[sz](?=(?:e|es|ed|er|ers|ing|ation|ations)$)")


def _members() -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for group in _GROUPS.split(","):
        words = group.split()
        for word in words:
            found.setdefault(word, {}).update(dict.fromkeys(one for one in words if one != word))
    return {word: tuple(others) for word, others in found.items()}


_MEMBERS = _members()


def other_forms(word: str) -> tuple[str, ...]:
    """Return the other forms of a folded word that its endings do not lead to; most words have none."""
    others = _MEMBERS.get(word, ())
    if len(word) >= 5:
        spelling = _OUR.sub(lambda found: "or" if found.group() == "our" else "our", word)
        spelling = _ISE.sub(lambda found: "z" if found.group() == "s" else "s", spelling)
        if spelling != word:
            others = (*others, spelling)
    return others


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
