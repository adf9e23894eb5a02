"""Reads files and directories without leaving a trace."""
