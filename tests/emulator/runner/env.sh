#!/bin/bash
# Keeps the caller's PATH and a few variables for jobs, as actions/runner's does.
DIR=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
printf %s "$PATH" >"$DIR/.path"
for name in LANG JAVA_HOME ANDROID_HOME; do
	if [ -n "${!name-}" ]; then printf '%s=%s\n' "$name" "${!name}"; fi
done >"$DIR/.env"
