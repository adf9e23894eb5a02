"""Damage without end: mutated batches and messages through the compiled kernel, under the sanitizers of gcc or clang.

    python -m tests.fuzz --seconds 600
    python -m tests.fuzz --inputs 5000000

`run` builds the kernel with AddressSanitizer and UndefinedBehaviorSanitizer into a temporary folder and starts a
`driver` per core; the first complaint of a sanitizer, or an answer that contradicts another, ends it with exit 1.
"""
