# bash completion for boxery and boxery-host. Options come from --help, so that they cannot differ from it.
_boxery_words()
{
	"$@" --help 2>/dev/null </dev/null | sed -n -e 's/^  \(--[a-z-]*\).*/\1/p'
}

_boxery()
{
	local current=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]} i words=() commands
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--host) ((i++)) ;; # another machine's commands are the same
		-*) ;;
		*) words+=("${COMP_WORDS[i]}") ;;
		esac
	done
	case "${words[*]}" in
	'') commands=$("$program" --help 2>/dev/null | sed -n -e '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p') commands+=' --host --help --version' ;;
	runners) commands='once check token status history show logs explain drain pause resume reload' ;;
	pool) commands='add set ls show repair patch keep rm history' ;;
	lease) commands='renew ls' ;;
	esac
	if [[ $current == -* && ${#words[@]} -gt 0 ]]; then
		case ${words[0]} in
		runners | pool | lease)
			commands=$(_boxery_words "$program" "${words[0]}" ${words[1]:+"${words[1]}"}) ;;
		*) commands=$(_boxery_words "$program" "${words[0]}") ;;
		esac
	fi
	# shellcheck disable=SC2207
	COMPREPLY=($(compgen -W "$commands" -- "$current"))
}
complete -o default -F _boxery boxery boxery-host
