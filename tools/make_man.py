"""Write docs/klog.1 (`make completions`): commands and options from their declarations, the rest from here."""

from __future__ import annotations

import os

from tools.command_line import Command, Option, read

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

HEAD = r""".\" Made by `make completions`: change the command line's declarations or tools/make_man.py, not this.
.TH KLOG 1 "" "klog {version}" "User Commands"
.SH NAME
klog \- read, explain and check Kafka broker data directories with no broker running
.SH SYNOPSIS
.B klog
.I command
.RI [ options ]
.IR PATH ...
.SH DESCRIPTION
.B klog
opens what a Kafka broker wrote: log segments, their indexes, producer snapshots, checkpoints, whole log dirs.
No broker is needed, and none is disturbed: nothing is created, touched or locked, and read-only media will do.
.PP
.I PATH
is a file, a partition directory
.RI ( orders-3 )
or a log dir (what the broker's
.B log.dirs
names).  Results go to standard output, everything else to standard error.
.SH COMMANDS
"""

TAIL = r""".SH EXIT STATUS
The numbers are those of
.BR fsck (8);
where several hold they are added up.
.TP
.B 0
Clean.
.TP
.B 1
Problems were corrected.
.TP
.B 4
Problems are left, or what was looked for is not there.
.TP
.B 8
It could not be done: an I/O error, no permission, not Kafka's data, a lock held.
.TP
.B 16
The command line makes no sense.
.TP
.B 32
Cancelled with ^C.
.SH ENVIRONMENT
.TP
.B NO_COLOR
When set, nothing is coloured.
.TP
.B KLOG_TRACEBACK
With 1, an error shows where in klog it arose.
.SH EXAMPLES
What is on this disk:
.PP
.RS
.nf
klog describe /var/lib/kafka/data
.fi
.RE
.PP
What Kafka's own dump tool would print:
.PP
.RS
.nf
klog dump \-\-deep\-iteration \-\-print\-data\-log orders\-3/00000000000000001841.log
.fi
.RE
.PP
Ten records from the middle, as JSON lines:
.PP
.RS
.nf
klog dump \-\-output jsonl \-\-from\-offset 368776 \-\-limit 10 orders\-3
.fi
.RE
.SH SEE ALSO
The README and docs/dump.md that come with klog.
"""


def page(klog: Command, version: str) -> str:
    """Return the manual page of *klog* as roff."""
    commands = [_command(command) for command in klog.walk() if command.words and not command.children]
    overall = [".SS Options of klog itself\n", *map(_option, klog.options)]
    return HEAD.replace("{version}", version) + "".join([*commands, *overall]) + TAIL


def _command(command: Command) -> str:
    arguments = " ".join(rf"\fI{_escape(argument)}\fR" for argument in command.arguments)
    head = f".SS klog {_escape(command.name)} [options] {arguments}\n"
    paragraphs = [_escape(" ".join(part.split())) for part in command.help.split("\n\n")]
    return head + "\n.PP\n".join(paragraphs) + "\n" + "".join(map(_option, command.options))


def _option(option: Option) -> str:
    names = ", ".join(rf"\fB{_escape(name)}\fR" for name in option.names)
    value = rf" \fI{_escape(option.metavar)}\fR" if option.metavar else ""
    return f".TP\n{names}{value}\n{_escape(option.help)}\n"


def _escape(text: str) -> str:
    r"""*text* with roff's own characters made harmless: `\`, `-` (else a hyphen), a dot or quote that begins a line."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{text}" if text.startswith((".", "'")) else text


def main() -> None:
    import klog

    with open(os.path.join(ROOT, "docs", "klog.1"), "w", encoding="utf-8") as file:
        file.write(page(read(), klog.__version__))


if __name__ == "__main__":
    main()
