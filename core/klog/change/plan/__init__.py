"""Plans: every change of a log dir, from the draft to the undo.

A command drafts changes (`draft`, `staging`), which become a plan (`model`, `json_file`, `validation`); `executor`
carries it out under the `locks`, `backup_writer` keeps what it replaces, `status` derives its progress, `backups`
finds it again and `undo` takes it back.
"""
