# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# Sourced by check: what only a job and a real runner show (A6 to A14, A17).
# The job itself: A8 is its exit code. It looks at its own process and at the worker that started it.
job_script='for p in $$ $PPID; do
  if tr "\0" "\n" <"/proc/$p/environ" | grep -q "^ACTIONS_RUNNER_INPUT_"; then echo "process $p has the config"; exit 9; fi
done
case $WHAT in hold) sleep 40 ;; fail) exit 3 ;; esac'
workflow=boxery-check.yml
workflow_text() {
	cat <<-TEXT
		name: boxery-check
		on:
		  workflow_dispatch:
		    inputs:
		      what: {required: true, type: string}
		jobs:
		  check:
		    runs-on: [self-hosted, BOXERY-CHECK]
		    env: {WHAT: "\${{ inputs.what }}"}
		    steps:
		      - shell: bash
		        run: |
		$(printf '%s\n' "$job_script" | sed 's/^/          /')
	TEXT
}

vm=boxery-check vm_made='' listener='' scratch=''
host() { "${BOXERY_BUILD:-$here/../../build}/boxery-host" "$@"; }
jobs_tidy() {
	[ -z "$listener" ] || kill "$listener" 2>/dev/null
	[ -z "$vm_made" ] || host rm "$vm" --force >/dev/null 2>&1
	[ -z "$scratch" ] || rm -rf "$scratch"
}

dispatch() { # hold or fail
	if [ -n "${BOXERY_CHECK_DISPATCH:-}" ]; then
		CHECK_SCRIPT=$job_script $BOXERY_CHECK_DISPATCH "$1"
	else
		gh workflow run "$workflow" --repo "$repo" -f what="$1" >/dev/null
	fi
}

# until SECONDS COMMAND...: false when it was not true in time; $took is how long it took.
until_true() {
	local limit=$1 begin=$SECONDS
	shift
	while ! "$@"; do
		took=$((SECONDS - begin))
		[ "$took" -lt "$limit" ] || return 1
		sleep "$poll"
	done
	took=$((SECONDS - begin))
}

# The job with our label in a run of this status that is not one of those known already: sets run.
known=' '
new_run() { # STATUS
	local r
	for r in $(api "repos/$repo/actions/runs?status=$1&per_page=30" --jq '.workflow_runs[].id' 2>/dev/null); do
		case $known in *" $r "*) continue ;; esac
		[ "$(api "repos/$repo/actions/runs/$r/jobs" --jq '[.jobs[].labels[] | ascii_downcase | select(. == "boxery-check")] | length' \
			2>/dev/null)" -gt 0 ] || continue
		run=$r known="$known$r "
		return 0
	done
	return 1
}
listed() { # STATUS RUN
	api "repos/$repo/actions/runs?status=$1&per_page=30" --jq '.workflow_runs[].id' 2>/dev/null | grep -qx "$2"
}
job_of() { api "repos/$repo/actions/runs/$1/jobs" --jq ".jobs[0] | .$2 // \"\"" 2>/dev/null; } # RUN FIELD
job_is() { [ "$(job_of "$1" status)" = "$2" ]; }
runner_is() { [ "$(api "repos/$repo/actions/runners/$1" --jq .status 2>/dev/null)" = "$2" ]; } # ID online|offline
runner_gone() { [ "$(status "repos/$repo/actions/runners/$1")" = 404 ]; }

in_shell() { ${BOXERY_CHECK_SHELL:-host ssh "$vm" bash -s}; }
# A listener as guest/run-job starts it. The config goes through stdin and is in no argument.
listen() { # NAME: sets id and listener; its output is in $scratch/listener.log
	mint "$1"
	[ -n "$id" ] || return 1
	in_shell >"$scratch/listener.log" 2>&1 <<-SCRIPT &
		{
			cd "${BOXERY_CHECK_ROOT:-/opt/actions-runner}" || exit 66
			rm -rf .runner .credentials .credentials_rsaparams _diag _work
			export ACTIONS_RUNNER_INPUT_JITCONFIG=$jit ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE=true
			exec </dev/null
			if [ "\$(stat -c %G .)" = runner ]; then
				export HOME=/home/runner USER=runner LOGNAME=runner
				exec setpriv --reuid=runner --regid=runner --init-groups -- bin/Runner.Listener run
			fi
			exec bin/Runner.Listener run
		}
	SCRIPT
	listener=$!
	jit=''
}
listener_ended() { ! kill -0 "$listener" 2>/dev/null; }
# Sets code: the listener's exit code, or what is said instead.
listener_wait() { # SECONDS
	if until_true "$1" listener_ended; then
		wait "$listener"
		code=$?
	else
		code="still running after $1 s"
		kill "$listener" 2>/dev/null
	fi
	listener=''
}

layout() { # what A10 is about: 555 555 1
	in_shell 2>/dev/null <<-SCRIPT
		cd "${BOXERY_CHECK_ROOT:-/opt/actions-runner}" && echo "\$(stat -c %a bin externals | tr '\n' ' ')\$([ -k . ] && echo sticky)"
	SCRIPT
}

not_checked() { # WHY
	for a in A6 A7 A8 A9 A10 A11 A14 A17; do say $a "not checked" "$1"; done
	[ -z "$long" ] || say A12 "not checked" "$1"
}

agreed() {
	[ -z "$yes" ] || return 0
	cat <<-TEXT

		The rest needs a runner and jobs. It will
		  - ${BOXERY_CHECK_SHELL:+use the shell that BOXERY_CHECK_SHELL names}${BOXERY_CHECK_SHELL:-make, start and remove a VM $vm on this machine (outside any pool)}
		  - start the workflow $workflow of $repo two times
		  - register three runners or four, and delete what is left of them
	TEXT
	read -r -p "Go on? [y/N] " reply && [ "$reply" = y ]
}

jobs_check() {
	local text
	if [ -z "${BOXERY_CHECK_DISPATCH:-}" ] && ! api "repos/$repo/contents/.github/workflows/$workflow" --silent 2>/dev/null; then
		not_checked "$repo has no .github/workflows/$workflow on its default branch"
		printf '\nCommit this file there, then run this again:\n\n'
		workflow_text
	elif ! agreed; then
		not_checked "not agreed to"
	else
		scratch=$(mktemp -d)
		if [ -z "${BOXERY_CHECK_SHELL:-}" ]; then
			text=$(host new "$vm" 2>&1) && vm_made=1 && text=$(host start "$vm" 2>&1) || {
				not_checked "no VM: $text"
				return
			}
		fi
		one_job
		vanished
		[ -z "$long" ] || idle_for_long
	fi
	if [ -z "$long" ]; then
		say A12 "not checked" "needs an idle runner for half an hour: --long"
		say A13 "not checked" "needs a day: --long"
	else
		unused_for_long
	fi
}

# Two jobs, one after the other, with a runner each; what is looked at on the way is A14, A7, A6, A9, A8, A10, A11, A17.
one_job() {
	local first second name shape after
	dispatch hold || { not_checked "the workflow cannot be started"; return; }
	if until_true 120 new_run queued; then
		first=$run
		text="queued after $took s"
	else
		not_checked "the started run is not listed as queued within 120 s"
		say A14 DIFFERS "not listed within 120 s"
		return
	fi
	shape=$(layout)
	name=$(new_name)
	listen "$name" || { not_checked "no runner was made"; return; }
	if ! until_true 180 job_is "$first" in_progress; then
		say A10 DIFFERS "the job did not begin within 180 s; the listener's words: $(tail -n 3 "$scratch/listener.log" | tr '\n' ' ')"
		say A7 DIFFERS "or the job's label BOXERY-CHECK was not matched by the runner's Boxery-Check"
		return
	fi
	if until_true 30 listed in_progress "$first"; then
		say A14 ok "$text; in_progress $took s after the job says so"
	else
		say A14 DIFFERS "$text; not among those in_progress within 30 s"
	fi
	expect A7 "the runner of a job for BOXERY-CHECK" "$name" "$(job_of "$first" runner_name)"
	expect A6 "DELETE of a runner with a job" 422 "$(delete "$id")"
	# A second job waits while the first one runs: this runner must not take it.
	dispatch fail && until_true 120 new_run queued && second=$run
	listener_wait 300
	after=$(job_of "${second:-0}" status)
	expect A9 "the listener's end, and the job behind it" "0, queued" "$code, ${after:-not started}"
	text=$(job_of "$first" conclusion)
	case $text in
	success) say A8 ok "the job ran, and neither it nor its worker has the variable" ;;
	*) say A8 DIFFERS "the job ended with '$text': see its log" ;;
	esac
	case "$shape, $text" in
	"555 555 sticky, success") say A10 ok "bin and externals 555, sticky root" ;;
	"555 555 sticky, "*) say A10 DIFFERS "the job ended with '$text'" ;;
	*) say A10 "not checked" "the folder is not as in an image: '$shape'" ;;
	esac
	[ -n "${second:-}" ] || { say A11 "not checked" "the second run was not seen"; return; }
	listen "$(new_name)" || { say A11 "not checked" "no runner was made"; return; }
	listener_wait 300
	until_true 60 job_is "$second" completed
	expect A11 "a failed job, and the listener's exit code" "failure, 0" "$(job_of "$second" conclusion), $code"
	if until_true 180 runner_gone "$id"; then
		say A17 ok "gone $took s after its job"
	else
		say A17 DIFFERS "still there after 180 s"
	fi
}

vanished() {
	listen "$(new_name)" || return
	if until_true 120 runner_is "$id" online; then
		expect A11 "DELETE of an idle runner" 204 "$(delete "$id")"
		listener_wait 300
		expect A11 "and its listener's exit code" 0 "$code"
	else
		say A11 "not checked" "the runner was not online within 120 s"
		listener_wait 0
	fi
}

idle_for_long() {
	listen "$(new_name)" || return
	if ! until_true 120 runner_is "$id" online; then
		say A12 "not checked" "the runner was not online within 120 s"
	elif until_true 1800 runner_gone "$id"; then
		say A12 ok "gone after $took s"
		unset "made[$id]"
	else
		say A12 DIFFERS "still there after half an hour"
	fi
	listener_wait 60
}

unused_for_long() {
	mint "$(new_name)"
	[ -n "$id" ] || { say A13 "not checked" "no runner was made"; return; }
	poll=$((poll * 12))
	if until_true 90000 runner_gone "$id"; then
		say A13 ok "gone after $took s"
		unset "made[$id]"
	else
		say A13 DIFFERS "still there after 25 hours"
	fi
}
