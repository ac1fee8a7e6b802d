"""Sessions as files: one message a line, and sidecar files beside it. Begin with `store`."""
