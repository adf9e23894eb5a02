# bash completion for klog.  Made by `make completions` from the command line itself: change that, not this.

_klog() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= words= value= i
    # --output=json arrives as three words
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${command:+$command }${COMP_WORDS[i]}" in
            
        esac
    done
    value=1
    case "$command $prev" in
        
        *) value= ;;
    esac
    if [[ -z $value ]]; then
        case "$command" in
            '') words=--help ;;
        esac
        # options only where one begins; otherwise paths, which `-o default` completes
        [[ $words == -* && $cur != -* ]] && words=
    fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}

complete -o default -F _klog klog
