#!/bin/bash
# The stand-in lives by JIT configurations only; the listener says so.
exec "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/bin/Runner.Listener" "${1:-configure}" "${@:2}"
