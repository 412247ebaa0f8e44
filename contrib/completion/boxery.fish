# fish completion for boxery and boxery-host. Options come from --help, so that they cannot differ from it.
function __boxery_given
    set -l skip 0
    for word in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
        else if test "$word" = --host
            set skip 1
        else if not string match -q -- '-*' $word
            echo $word
        end
    end
end
function __boxery_words
    set -l program (commandline -opc)[1]
    set -l given (__boxery_given)
    if string match -q -- '-*' (commandline -ct); and test (count $given) -gt 0
        if not contains -- $given[1] runners pool lease; or test (count $given) -lt 2
            set given $given[1]
        else
            set given $given[1..2]
        end
        $program $given --help 2>/dev/null </dev/null | sed -n -e 's/^  \(--[a-z-]*\).*/\1/p'
        return
    end
    switch "$given"
        case ''
            $program --help 2>/dev/null | sed -n -e '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'
            printf '%s\n' --host --help --version
        case runners
            printf '%s\n' once check token status history show logs explain drain pause resume reload
        case pool
            printf '%s\n' add set ls show repair patch keep rm history
        case lease
            printf '%s\n' renew ls
    end
end
complete -c boxery -a '(__boxery_words)'
complete -c boxery-host -a '(__boxery_words)'
