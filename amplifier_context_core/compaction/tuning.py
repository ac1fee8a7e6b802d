"""The constants of chapters in one place: how their room is divided.

Each was chosen on the half "choose" of the recorded sessions. The experiment is named beside each; *frontier* is the
table of that name in docs/reports/evaluation.md, made by `python -m lab.frontier`. What no experiment
is named for was set by reading chapters.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """How chapters divide their room."""

    person_chars: int = 4_000  # of one message that a person wrote. Issue 12: room for all of it at every budget
    agent_chars: int = 3_000  # of the agent's sentences in one message. Frontier: 0 leaves the agent's sentences out
    summary_chars: int = 1_500  # of the sentences in a summary that the host wrote: at 3,000 the agent's own lose most
    # Of the worth of an agent's sentence, what it has beside calls: what is said at the end of a turn is what came of
    # it. docs/reports/evaluation.md (Working memory)
    beside_calls: float = 0.6
    excerpt_chars: int = 80  # of the line that is quoted of an output. docs/reports/evaluation.md (Excerpts of outputs)
    agent_share: float = 0.30  # of the tokens a chapter replaces: for the agent's sentences in it. Frontier
    people: float = 0.8  # share of the room for people's sentences, where not all that they wrote themselves fits
    pasted: float = 0.05  # share of the room that sentences which people pasted may take of that
    # Share of what is left then, for sentences of the agent. docs/reports/evaluation.md (Sentences and names)
    agent: float = 0.60
    # Share of what is left then, for calls; above it they are cut: mark, tool and names of the oldest stay. As above
    calls: float = 0.25
    freshness: float = 0.2  # worth of the newest entry above the oldest. At 0.5 recall fell by 0.001 at 10 % and 5 %
    cut_name: float = 2.5  # worth of a name that was cut off: what a call or a sentence was about
    names_of_speech: float = 0.25  # of the sentences that are left out: room for names in them
    chapters: float = 0.25  # share of the budget that chapters may fill. docs/reports/evaluation.md (Working memory)
    # Tokens that chapters may fill whatever the budget, up to `chapter_share`: in a small view names are most of what
    # there is to know. docs/reports/evaluation.md (Working memory)
    least_chapters: int = 1_200
    # Of the geometric mean of the budget and the tokens that chapters replace, what they may fill where that is more: a
    # small view of a long session keeps as much as it can. The same experiment
    chapters_of_replaced: float = 0.17
    condensed_share: float = 0.65  # of the tokens that chapters may fill: what condensing aims at. Frontier
    # Of the same, what it aims at at most, to keep all that people wrote themselves. docs/reports/evaluation.md (Chats)
    condensed_for_people: float = 0.75


TUNING = Tuning()
