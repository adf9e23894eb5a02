"""Mutants that are equivalent to the original, each with the reason: no test can kill them, and none is counted."""

_FIRST = "the first segment has a group of its own, and the sizes are then those of that segment"
_LZ4 = "frames of LZ4 are other ones in magic 0 only"
_COMPRESSED = "rewriter.compressed(self._compress[codec](rewriter.plain_records(), {}))"

_TIME = "no time stamp that counts is below 1"

SAME: dict[tuple[str, str, str], str] = {
    ("klog/commands/compact/cleaned_segments.py", "sizes = (0, 0, 0)", "sizes = (1, 0, 0)"): _FIRST,
    ("klog/commands/compact/cleaned_segments.py", "sizes = (0, 0, 0)", "sizes = (0, 1, 0)"): _FIRST,
    ("klog/commands/compact/cleaned_segments.py", "sizes = (0, 0, 0)", "sizes = (0, 0, 1)"): _FIRST,
    ("klog/commands/compact/log_to_clean.py", "if limit <= 0:", "if limit <= 1:"): _TIME,
    ("klog/commands/compact/record_retention.py", _COMPRESSED.format(2), _COMPRESSED.format(1)): _LZ4,
    ("klog/commands/compact/record_retention.py", _COMPRESSED.format(2), _COMPRESSED.format(3)): _LZ4,
}
"""The equivalent mistakes by file: the lines before and after, without their surroundings."""
