"""Reach: of what a view lacks, what one search brings; asked with what was written before, never with what comes."""

from __future__ import annotations

from amplifier_context_testing import coding_session
from amplifier_context_testing.lab import Session, Size, manager, measure
from amplifier_context_testing.lab.run import Extras, Report
from amplifier_context_testing.lab.table import markdown


def call(number: int, path: str) -> dict[str, object]:
    return {"id": f"c{number}", "tool": "read", "arguments": {"path": path}}


def session(sentence: str) -> Session:
    """A file is read, much else with names follows, then a person speaks of a subject, and the agent uses the name."""
    noise = [
        " ".join(f"plain words of round {number} in src/module_{number}_{place}.py" for place in range(90))
        for number in range(20)
    ]
    messages: list[dict[str, object]] = [{"role": "user", "content": "Begin."}]
    outputs = [" ".join(["the kestrel gate is in src/kestrel_gate_7.py", noise[0]]), *noise]
    for number, output in enumerate(outputs):
        messages.append({"role": "assistant", "content": "", "tool_calls": [call(number, "a")]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": output})
    messages.append({"role": "user", "content": sentence})
    messages.append({"role": "assistant", "content": "", "tool_calls": [call(99, "src/kestrel_gate_7.py")]})
    messages.append({"role": "tool", "tool_call_id": "c99", "content": "text"})
    return Session("made", "made", messages)


async def measured(*sessions: Session, reach: bool = True) -> Report:
    config = {"token_counter": "heuristic", "ladder": ["drop"]}
    ours = manager("context-simple", config=config)
    return await measure(sessions, [ours], Size(budget=6_000), extras=Extras(reach=reach))


async def test_a_search_by_the_newest_sentence_reaches_what_it_speaks_of() -> None:
    figures = (await measured(session("Good. Now back to the kestrel gate."))).rows[0].figures
    assert (figures.reach.found, figures.reach.sought) == (1, 1)


async def test_the_message_that_is_to_come_is_not_the_query() -> None:
    figures = (await measured(session("Now something quite different, please."))).rows[0].figures
    assert (figures.reach.found, figures.reach.sought) == (0, 1)
    assert (figures.oracle.found, figures.oracle.sought) == (1, 1)


async def test_measuring_reach_changes_no_other_figure() -> None:
    sessions = [Session("coding", "coding", list(coding_session(80, seed=3)))]
    with_reach, without = await measured(*sessions), await measured(*sessions, reach=False)
    sought = with_reach.rows[0].figures.reach.sought
    assert sought > 0
    (one, other) = (report.rows[0].figures.steady() for report in (with_reach, without))
    assert {**one, "reach": None, "oracle": None} == {**other, "reach": None, "oracle": None}
    assert ("| reach | oracle" in markdown(with_reach), "reach" in markdown(without)) == (True, False)
