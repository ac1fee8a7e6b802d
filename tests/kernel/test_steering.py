"""A person looks at a session of the real kernel and steers it, while its agent goes on."""

from __future__ import annotations

import pytest

from amplifier_context_testing import EventRecorder, session
from tests.kernel.test_sessions import EVENTS, Echo, echo_module, plan_of, reading, replay_of

pytestmark = [pytest.mark.kernel, pytest.mark.stores()]


async def test_a_person_looks_previews_compacts_a_range_pins_and_undoes_between_the_turns() -> None:
    recorder = EventRecorder(only=EVENTS)
    script = [answer for pages in (10, 10, 2, 2, 2) for answer in (*reading(pages), "Read.")]
    plan = plan_of(script, window=10_000)
    async with session(plan, modules=echo_module(Echo()), recorder=recorder) as running:
        capability = running.coordinator.get_capability
        recorder.attach(running.coordinator, ["context:prefix_changed"])
        breaks = [recorder.count("context:prefix_changed")]

        async def turn(number: int) -> None:
            assert await running.execute(f"Prompt {number}.") == "Read."
            breaks.append(recorder.count("context:prefix_changed"))

        await turn(0)
        text = await capability("context.describe")()
        assert "compaction in" in text
        await turn(1)
        said = await capability("context.preview")(last="m13")
        assert breaks[-1] == 0  # to look changes nothing
        done = await capability("context.compact")(last="m13")
        assert (done["compacted"], done["after_tokens"]) == (True, said["after_tokens"])
        await turn(2)
        assert breaks[-1] == 1
        await capability("context.pin")("m17")
        assert (await capability("context.undo")("m5"))["undone"]
        await turn(3)
        assert breaks[-1] == 2  # the chapter's originals are back
        await turn(4)
        assert breaks[-1] == 2
        provider = replay_of(running)
        assert provider.violations == []
        assert provider.requests == len(script)
        assert recorder.count("provider:error") == 0
        assert [row["trigger"] for row in await capability("context.compactions")()] == ["manual"]
        usage = await capability("context.usage")()
        assert usage["kinds"]["pins"] > 0
        assert usage["reported"] is not None
