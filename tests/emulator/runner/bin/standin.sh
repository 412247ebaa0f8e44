# Shared by Runner.Listener and Runner.Worker of the stand-in. Needs ROOT, DIAG, URL and SCRATCH where said.
# shellcheck shell=bash disable=SC2034
#
# No $(...) or <(...) below or in what runs once traps are set: a trap that comes while bash 5.2 expands one is parsed as
# part of it and lost. Builtins write into variables instead, which also saves forks in a slow guest.
read -r VERSION <"$ROOT/bin/standin.version"
SELF=${0##*/}
STOP=
declare -A ANSWER=()

# stamp VARIABLE: UTC now, as the real one prints it.
stamp() { TZ=UTC printf -v "$1" '%(%Y-%m-%d %H:%M:%SZ)T' -1; }

# say TEXT / say_at TEXT: a line of stdout, without and with the time.
say() { printf '%s\n' "$*"; }
say_at() {
	local t
	stamp t
	printf '%s: %s\n' "$t" "$*"
}

# As the real one reads a switch: anything but these is off.
truth() { case ${1-} in 1 | [Tt]rue | TRUE | \$true) return 0 ;; *) return 1 ;; esac; }

# A line of the trace: into _diag, and to stdout when ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT asks for it.
trace() {
	local t tag
	stamp t
	printf '[%s INFO %s] %s\n' "$t" "${SELF#Runner.}" "$*" 2>/dev/null >>"$DIAG" || :
	truth "${ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT-}" || return 0
	tag=RUNNER
	[ "$SELF" != Runner.Worker ] || tag=WORKER
	printf '[%s %s INFO %s] %s\n' "$tag" "$t" "${SELF#Runner.}" "$*"
}

# A sleep that a signal ends.
nap() {
	sleep "$1" &
	wait $! || :
}

# decode VARIABLE BASE64
decode() {
	printf -v "$1" %s ''
	printf %s "$2" | base64 -d >"$SCRATCH/decoded" 2>/dev/null
	IFS= read -r -d '' "${1?}" <"$SCRATCH/decoded" || :
}

# start_request METHOD PATH SECRET SECONDS [BODY-FILE]: curl in the background, REQUEST is its pid. The secret goes through
# stdin, not argv. Trust is curl's: the system's store, or CURL_CA_BUNDLE.
start_request() {
	local args=(-sS -X "$1" --connect-timeout 15 --max-time "$4" -A "actions-runner-standin/$VERSION" -K -
		-o "$SCRATCH/answer" -w '%{http_code}\n')
	[ -z "${5-}" ] || args+=(-H 'Content-Type: application/octet-stream' -H 'Expect:' --data-binary "@$5")
	: >"$SCRATCH/answer"
	: >"$SCRATCH/status"
	: >"$SCRATCH/error"
	curl "${args[@]}" "$URL$2" <<<"header = \"Authorization: Bearer $3\"" >"$SCRATCH/status" 2>"$SCRATCH/error" &
	REQUEST=$!
}

# Sets HTTP to the status, 000 when there was no answer; ERROR to curl's words; ANSWER to the lines `key value` of the body.
end_request() {
	local key value
	HTTP='' ERROR='' ANSWER=()
	read -r HTTP <"$SCRATCH/status" || :
	read -r ERROR <"$SCRATCH/error" || :
	HTTP=${HTTP:-000}
	while read -r key value; do
		case $key in '' | *[!a-z0-9_]*) ;; *) ANSWER[$key]=$value ;; esac
	done <"$SCRATCH/answer"
}

# request METHOD PATH SECRET SECONDS [BODY-FILE]: start, wait, end. STOP ends it early with HTTP 000; other signals do not.
request() {
	start_request "$@"
	while kill -0 "$REQUEST" 2>/dev/null && [ -z "$STOP" ]; do wait "$REQUEST" || :; done
	[ -z "$STOP" ] || kill "$REQUEST" 2>/dev/null || :
	end_request
}
