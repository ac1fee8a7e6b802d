"""The constants of chapters in one place: how their room is divided.

Each was chosen on the half "choose" of the recorded sessions. The experiment is named beside each; *frontier* is the
table of that name in docs/evaluation.md, made by `python -m amplifier_context_testing.lab.frontier`. What no experiment
is named for was set by reading chapters.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """How chapters divide their room.

    Attributes:
        person_chars: characters of one message that a person wrote. Issue 12: room for all of it at every budget.
        agent_chars: characters of the agent's sentences in one message. Frontier: 0 leaves the agent's sentences out.
        beside_calls: of the worth of an agent's sentence, what it has beside calls. What an agent says at the end of a
            turn is what came of it. docs/evaluation.md (Working memory).
        excerpt_chars: characters of the line that is quoted of an output. docs/evaluation.md (Excerpts of outputs).
        agent_share: of the tokens a chapter replaces, what the agent's sentences in it may take. Frontier.
        people: share of the room that sentences of people may take, when chapters are condensed and not all that people
            wrote themselves fits. Set by reading.
        pasted: share of the room that sentences which people pasted may take of that. Set by reading.
        agent: share of what is left then that sentences of the agent may take. Frontier.
        calls: share of what is left then that calls may take; above it they are cut, and of the oldest stay mark, tool
            and names. Frontier.
        freshness: worth that the newest entry has above the oldest. At 0.5 recall fell by 0.001 at 10 % and 5 %.
        cut_name: worth of a name that was cut off: what a call or a sentence was about. Set by reading.
        names_of_speech: of the sentences that are left out, what names in them may take. Set by reading.
        chapters: share of the budget that chapters may fill. docs/evaluation.md (Working memory).
        least_chapters: tokens that chapters may fill whatever the budget, up to `chapter_share`: in a small view names
            are most of what there is to know. docs/evaluation.md (Working memory).
        chapters_of_replaced: of the geometric mean of the budget and the tokens that chapters replace, what they may
            fill where that is more: a small view of a long session keeps as much as it can. The same experiment.
        condensed_share: of the tokens that chapters may fill, what condensing aims at. Frontier.
        condensed_for_people: of the same, what it aims at, at most, to keep all that people wrote themselves.
            docs/evaluation.md (Chats).
        roots: a chapter names the directory of its paths once. Frontier.
        one_ranking: condensing ranks the sentences and names of all rounds together; else each round keeps the same
            share. docs/evaluation.md (Ablations).
    """

    person_chars: int = 4_000
    agent_chars: int = 3_000
    beside_calls: float = 0.6
    excerpt_chars: int = 80
    agent_share: float = 0.30
    people: float = 0.8
    pasted: float = 0.05
    agent: float = 0.60
    calls: float = 0.15
    freshness: float = 0.2
    cut_name: float = 2.5
    names_of_speech: float = 0.25
    chapters: float = 0.25
    least_chapters: int = 1_200
    chapters_of_replaced: float = 0.13
    condensed_share: float = 0.65
    condensed_for_people: float = 0.75
    roots: bool = True
    one_ranking: bool = True


TUNING = Tuning()
