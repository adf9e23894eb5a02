"""Reading: files and directories, without a trace."""
