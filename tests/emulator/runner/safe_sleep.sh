#!/bin/bash
# Waits the given seconds without needing anything but bash.
end=$((SECONDS + ${1:-1}))
while [ $SECONDS -lt $end ]; do read -rt 0.2 <> <(:) || :; done
