"""The completion scripts of bash, zsh and fish, made from the command line's declarations.

A press of TAB starts Python only where the answer is on a disk: for topics of the paths on the line, and for plans.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable

from klog_cli.command_catalog import Command, Option

HEADER = "Made by `make completions` from the command line itself: change that, not this."


TAKE_PLANS = ("apply", "undo")
"""The commands whose argument is a plan."""
_PLAN_CASE = "( " + " || ".join(f"$command == {name}" for name in TAKE_PLANS) + " )"


def _takes_topic(option: Option) -> bool:
    return "--topic" in option.names


def bash(klog: Command) -> str:
    """Return the completion script for bash; it needs no bash-completion library."""
    commands = list(klog.walk())
    descend = [_bash_case([command.name], "command", command.name) for command in commands if command.words]
    values = [
        _bash_case([f"{command.name} {name}" for name in option.names], "words", " ".join(option.choices))
        for command in commands
        for option in command.options
        if option.metavar and not _takes_topic(option)
    ]
    words = [_bash_case([command.name], "words", " ".join(_bash_words(command))) for command in commands]
    return f"""# bash completion for klog.  {HEADER}

_klog() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} command= words= value= i
    # --output=json arrives as three words
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${{command:+$command }}${{COMP_WORDS[i]}}" in
            {_lines(descend, 12)}
        esac
    done
    value=1
    case "$command $prev" in
        *' -t' | *' --topic') words=$(klog completion topics -- "${{COMP_WORDS[@]:1}}" 2>/dev/null) ;;
        {_lines(values, 8)}
        *) value= ;;
    esac
    if [[ -z $value ]]; then
        case "$command" in
            {_lines(words, 12)}
        esac
        # options only where one begins; otherwise paths, which `-o default` completes
        [[ $words == -* && $cur != -* ]] && words=
        [[ {_PLAN_CASE} && $cur != -* ]] && words=$(klog completion plans 2>/dev/null)
    fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}

complete -o default -F _klog klog
"""


def _bash_case(patterns: Iterable[str], variable: str, value: str) -> str:
    return f"{' | '.join(map(shlex.quote, patterns))}) {variable}={shlex.quote(value)} ;;"


def _bash_words(command: Command) -> list[str]:
    # Names of commands are first: a list that begins with an option belongs to a command that takes paths.
    return [child.words[-1] for child in command.children] + [
        name for option in command.options for name in option.names
    ]


def _lines(lines: Iterable[str], indent: int) -> str:
    return ("\n" + " " * indent).join(lines)


_ZSH_ASKING = """_klog_topics() {
    compadd -- ${(f)"$(klog completion topics -- ${words[@]} 2>/dev/null)"}
}

_klog_plans() {
    compadd -- ${(f)"$(klog completion plans 2>/dev/null)"}
    _files
}
"""


def zsh(klog: Command) -> str:
    """Return the completion function for zsh, to be found as `_klog` in its fpath."""
    functions = "\n".join(_zsh_function(command) for command in klog.walk())
    return f'#compdef klog\n# zsh completion for klog.  {HEADER}\n\n{_ZSH_ASKING}\n{functions}\n_klog "$@"\n'


def _zsh_name(command: Command) -> str:
    return "_".join(("_klog", *command.words)).replace("-", "_")


def _zsh_function(command: Command) -> str:
    specs = [_zsh_option(option) for option in command.options]
    if not command.children:
        takes_plan = command.name in TAKE_PLANS
        last = ["'*:plan:_klog_plans'" if takes_plan else "'*:path:_files'"] if command.arguments else []
        return (
            f"{_zsh_name(command)}() {{\n    _arguments -s \\\n        {_lines(_continued([*specs, *last]), 8)}\n}}\n"
        )
    specs += ["'1:command:->command'", "'*::argument:->argument'"]
    names = [_zsh_quote(f"{child.words[-1]}:{_plain(child.summary)}") for child in command.children]
    cases = [f"{child.words[-1]}) {_zsh_name(child)} ;;" for child in command.children]
    return f"""{_zsh_name(command)}() {{
    local context state state_descr line
    typeset -A opt_args
    _arguments -C \\
        {_lines(_continued(specs), 8)}
    case $state in
        command)
            local -a commands=(
                {_lines(names, 16)}
            )
            _describe command commands
            ;;
        argument)
            case $words[1] in
                {_lines(cases, 16)}
            esac
            ;;
    esac
}}
"""


def _continued(lines: list[str]) -> list[str]:
    return [line + " \\" for line in lines[:-1]] + lines[-1:]


def _zsh_option(option: Option) -> str:
    text = re.sub(r"([\[\]:\\])", r"\\\1", _plain(option.help))
    value = ""
    if option.metavar:
        action = (
            "_klog_topics"
            if _takes_topic(option)
            else f"({' '.join(option.choices)})"
            if option.choices
            else "_files"
            if option.takes_file
            else " "
        )
        value = f":{option.metavar.replace(':', ' ')}:{action}"
    others = "*" if option.repeatable else f"({' '.join(option.names)})" if len(option.names) > 1 else ""
    specs = [f"{others}{name}{'=' if value and name.startswith('--') else ''}[{text}]{value}" for name in option.names]
    return " ".join(map(_zsh_quote, specs))


def _zsh_quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def fish(klog: Command) -> str:
    """Return the completion script for fish."""
    # While no command was found, "$command $word" begins with a blank.
    paths = [command.name if len(command.words) > 1 else f" {command.name}" for command in klog.walk() if command.words]
    lines = [line for command in klog.walk() for line in _fish_command(command)]
    return f"""# fish completion for klog.  {HEADER}

function __klog_command --description 'The command whose arguments are being written'
    set -l command
    for word in (commandline -opc)[2..-1]
        switch "$command $word"
            case {" ".join(map(_fish_quote, paths))}
                set command $command $word
        end
    end
    echo "$command"
end

complete -c klog -f
{chr(10).join(lines)}
"""


def _fish_command(command: Command) -> list[str]:
    here = f"complete -c klog -n 'test (__klog_command) = \"{command.name}\"'"
    lines = [f"{here} -a {child.words[-1]} -d {_fish_quote(_plain(child.summary))}" for child in command.children]
    lines += [f"{here} -F"] * bool(command.arguments)
    lines += [f"{here} -a '(klog completion plans 2>/dev/null)'"] * (command.name in TAKE_PLANS)
    for option in command.options:
        names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
        lines.append(f"{here} {names}{_fish_value(option)} -d {_fish_quote(_plain(option.help))}")
    return lines


def _fish_value(option: Option) -> str:
    if _takes_topic(option):
        return " -x -a '(klog completion topics -- (commandline -opc)[2..-1] 2>/dev/null)'"
    if option.choices:
        return f" -x -a {_fish_quote(' '.join(option.choices))}"
    if option.takes_file:
        return " -r -F"
    return " -x" if option.metavar else ""


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _plain(text: str) -> str:
    """*text* as a description: its first sentence, without a full stop."""
    return re.split(r"(?<=[a-z)])[.;] ", text)[0].rstrip(".")


SHELLS: dict[str, Callable[[Command], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
"""The script of each shell."""
