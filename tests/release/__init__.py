"""The one file that `make release` builds."""
