"""Bytes to values and back: every layout of Kafka's files, each declared once.

Nothing here opens a file or judges what it reads.
"""
