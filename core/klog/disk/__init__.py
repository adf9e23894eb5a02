"""Writing: the few calls that change a file system, and the gate that every path written to passes."""
