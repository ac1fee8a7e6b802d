"""What tests of context managers need, ours and yours.

* `check_request`, `checked`: would OpenAI, Anthropic and the kernel take this request?
* `WordCounter`, `EventRecorder`: a token counter to reason with, a record of kernel events.
* `mount_plan`, `session`: a real kernel session in a test, answered by `provider-replay`, run by `loop-replay`.
* `conversations`, `coding_session`: self-made histories, odd ones and endless ones.
* `read_transcripts`, `replay`: recorded histories, message by message.

Importing this package imports no kernel; what needs the kernel imports it when called.
"""

from .checks.coding_session import coding_session
from .checks.corpus import Conversation, conversations
from .checks.request_checker import check_request, checked
from .counters import WordCounter
from .fakes import ListContext
from .kernel import FolderResolver, mount_plan, session
from .recorder import Event, EventRecorder
from .replay.answer_policies import Answer
from .replay.loop import ReplayLoop
from .replay.provider import ReplayProvider
from .replay.transcripts import Transcript, read_transcripts, replay

__all__ = [
    "Answer",
    "Conversation",
    "Event",
    "EventRecorder",
    "FolderResolver",
    "ListContext",
    "ReplayLoop",
    "ReplayProvider",
    "Transcript",
    "WordCounter",
    "check_request",
    "checked",
    "coding_session",
    "conversations",
    "mount_plan",
    "read_transcripts",
    "replay",
    "session",
]
