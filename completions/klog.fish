# fish completion for klog.  Made by `make completions` from the command line itself: change that, not this.

function __klog_command --description 'The command whose arguments are being written'
    set -l command
    for word in (commandline -opc)[2..-1]
        switch "$command $word"
            
        end
    end
    echo "$command"
end

complete -c klog -f
complete -c klog -n 'test (__klog_command) = ""' -l help -d 'Show this help'
