"""Writing: every call that changes a file system, and the gate that every output path passes."""
