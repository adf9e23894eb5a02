"""Plans that change a disk: drafts, staging, execution, undo."""
