"""A process that is killed while a model is asked: nothing acknowledged is lost, nothing stored is asked again."""

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import SessionInUse
from amplifier_context_core.stores import open_store
from tests.messages import text, work
from tests.places import KEPT, Place, parameters
from tests.summary.scripted import HeldBack, Provider, drive, good, summary_manager, until_asked, view_of

pytestmark = pytest.mark.kernel
SESSION = work(120, output=900)


@pytest.fixture(params=parameters("sqlite", soak=KEPT))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def url_of(place: Place) -> str:
    """The place; on a server the lease of a killed process is over after a second."""
    url = place.url()
    return f"{url}{'&' if '?' in url else '?'}lease_ttl=1" if place.backend == "postgresql" else url


async def hang(url: str, session_id: str, answers: str) -> None:
    """Add messages until a model does not answer, after so many answers; print how many there are."""
    provider = HeldBack(int(answers) + 1)
    manager = summary_manager(provider, store=open_store(url), session_id=session_id)
    sys.stdout.write(f"{await until_asked(manager, provider, SESSION)}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


CODE = "import asyncio, sys; from tests.summary.test_kills import hang; asyncio.run(hang(*sys.argv[1:]))"


async def killed(place: Place, answers: int) -> int:
    """Run a session in a process, and kill it while the call after so many answers hangs; its messages."""
    command = [sys.executable, "-c", CODE, url_of(place), place.session_id(), str(answers)]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    async with asyncio.timeout(60):
        added = int(await child.stdout.readline())
    child.kill()
    await child.wait()
    return added


async def resumed(place: Place, provider: Provider) -> Any:
    """The session in this process; on a server as soon as the lease of the killed one is over."""
    while True:
        manager = summary_manager(provider, store=open_store(url_of(place)), session_id=place.session_id())
        try:
            await manager.get_messages()
        except SessionInUse:
            await manager.close()
            await asyncio.sleep(0.05)
        else:
            return manager


@pytest.mark.parametrize("answers", [0, 2])
async def test_what_was_acknowledged_is_there_and_nothing_stored_is_asked_again(place: Place, answers: int) -> None:
    added = await killed(place, answers)
    provider = Provider(good)
    manager = await resumed(place, provider)
    assert [message["content"] for message in await manager.get_messages()] == [m["content"] for m in SESSION[:added]]
    stored = [record.upto for record in await manager.records.verified()]
    assert len(stored) == answers
    assert ("SAW file" in text(await view_of(manager))) is (answers > 0)
    await manager.writer.wait(30)
    await drive(manager, SESSION[added:])
    ranges = re.findall(r"\[history m(\d+) to m(\d+)", str(provider.requests))
    assert len(ranges) == len(provider.requests) > 0
    ends = [max(stored, default=0), *(int(last) for _, last in ranges)]
    assert all(int(one[0]) > end for one, end in zip(ranges, ends, strict=False)), "each range is asked about once"
    await manager.close()
