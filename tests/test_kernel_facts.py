"""Facts of docs/kernel.md that the code relies on, asked of the kernel that is installed."""

from importlib.metadata import version

import amplifier_core.events as events
from amplifier_core.testing import MockCoordinator

from tests.pages import read


def test_the_page_names_the_kernel_that_is_installed_and_its_events_and_capabilities_are_as_it_says() -> None:
    assert f"`amplifier-core` {version('amplifier-core')}" in read("docs/kernel.md").replace("\n", " ")
    known = {value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}
    assert {"prompt:submit", "provider:error", "cancel:completed", "orchestrator:complete"} <= known
    assert {"context:pre_compact", "context:post_compact", "context:compaction", "module:load_failed"} <= known
    assert MockCoordinator().get_capability("context.nothing") is None
