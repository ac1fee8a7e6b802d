"""The demo: a session of the real kernel, run from a mount plan, its memory shown from request to request.

`run` is the command `amplifier-context run`. `scripted_agent` and `folder_tools` are the agent and the tools of the
plan that it runs by default: no model and no network are needed.
"""
