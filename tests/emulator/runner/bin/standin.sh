# Shared by Runner.Listener and Runner.Worker of the stand-in. Needs ROOT, URL and SCRATCH where said.
# shellcheck shell=bash
VERSION=$(cat "$ROOT/bin/standin.version")
SELF=${0##*/}
STOP=

now() { date -u '+%Y-%m-%d %H:%M:%SZ: '; }

# A line of the trace: into _diag, and to stdout when ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT asks for it.
trace() {
	local line
	line="[$(date -u '+%Y-%m-%d %H:%M:%SZ') INFO ${SELF#Runner.}] $*"
	printf '%s\n' "$line" 2>/dev/null >>"$DIAG" || :
	case ${ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT-} in
	1 | [Tt]rue | TRUE)
		if [ "$SELF" = Runner.Worker ]; then printf '[WORKER %s\n' "${line#\[}"; else printf '[RUNNER %s\n' "${line#\[}"; fi
		;;
	esac
}

# As the real one reads a switch: anything but these is off.
truth() { case $1 in 1 | [Tt]rue | TRUE | '$true') return 0 ;; *) return 1 ;; esac; }

# json_field FILE NAME: the scalar of that name (any case), quoted or not; the first one.
json_field() { sed -n 's/.*"'"$2"'"[[:space:]]*:[[:space:]]*"\{0,1\}\([^",}]*\).*/\1/Ip' "$1" | head -n 1; }

# field NAME: the value of a line `NAME value` of the last answer.
field() { sed -n "s/^$1 //p" "$SCRATCH/answer" | head -n 1; }

# A sleep that a signal ends.
nap() {
	sleep "$1" &
	wait $! || :
}

# start_request METHOD PATH SECRET SECONDS [BODY-FILE]: curl in the background, REQUEST is its pid. The secret goes through
# a pipe, not argv. Trust is curl's: the system's store, or CURL_CA_BUNDLE.
start_request() {
	local args=(-sS -X "$1" --connect-timeout 15 --max-time "$4" -A "actions-runner-standin/$VERSION" -K -
		-o "$SCRATCH/answer" -w '%{http_code}')
	[ -z "${5-}" ] || args+=(-H 'Content-Type: application/octet-stream' -H 'Expect:' --data-binary "@$5")
	: >"$SCRATCH/answer"
	curl "${args[@]}" "$URL$2" < <(printf 'header = "Authorization: Bearer %s"\n' "$3") \
		>"$SCRATCH/status" 2>"$SCRATCH/error" &
	REQUEST=$!
}

# Sets HTTP to the status, 000 when there was no answer, and ERROR to curl's words.
end_request() {
	HTTP=$(cat "$SCRATCH/status")
	ERROR=$(head -n 1 "$SCRATCH/error")
	HTTP=${HTTP:-000}
}

# request METHOD PATH SECRET SECONDS [BODY-FILE]: start, wait, end. STOP ends it early with HTTP 000; other signals do not.
request() {
	start_request "$@"
	while kill -0 "$REQUEST" 2>/dev/null && [ -z "$STOP" ]; do wait "$REQUEST" || :; done
	[ -z "$STOP" ] || kill "$REQUEST" 2>/dev/null || :
	end_request
}
