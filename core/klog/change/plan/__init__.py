"""Plans: every change of a log dir, from the draft to the undo.

A command drafts changes (`draft`, `staging`), which become a plan (`model`, `json_file`, `validation`); `executor`
applies it under the `locks`, `backup_writer` keeps the replaced files, `status` derives its progress, `backups` finds
it again and `undo` reverts it.
"""
