#!/bin/bash
# As actions/runner's: makes run-helper.sh from its template and runs it again for as long as it asks for it.
DIR=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
cp -f "$DIR/run-helper.sh.template" "$DIR/run-helper.sh"
chmod +x "$DIR/run-helper.sh"

once() {
	if [ -z "${RUNNER_MANUALLY_TRAP_SIG-}" ]; then
		"$DIR/run-helper.sh" "$@"
		return
	fi
	# In a group of its own, to which a signal is passed on as an interrupt.
	set -m
	"$DIR/run-helper.sh" "$@" &
	local pid=$! code
	trap 'kill -INT -- -$pid' INT TERM
	wait -f $pid
	code=$?
	while kill -0 $pid 2>/dev/null; do wait -f $pid; code=$?; done
	return $code
}

while :; do
	once "$@"
	case $? in
	2) echo 'Restarting runner...' ;;
	7) exit 7 ;;
	*)
		echo 'Exiting runner...'
		exit 0
		;;
	esac
done
