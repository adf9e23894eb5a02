"""The ground of everything: errors, progress, threads, processes, and files that are read without a trace."""
