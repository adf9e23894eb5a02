"""Plans: every change of a log dir, from the draft to the undo.

A command drafts changes (`draft`, `staging`, `replace_segments`), which become a plan (`model`, `plan_document`,
`plan_rules`); `executor` applies it after the checks of `plan_status`, `backup` keeps the replaced files,
`file_history` and `plan_status` derive its progress, `find_plans` finds it again and `undo` reverts it.
"""
