#!/bin/bash
# The real one installs the libraries .NET needs. The stand-in needs these commands and can only say which are missing.
missing=
for c in bash curl sed grep base64 head tail stat mktemp readlink date; do
	command -v "$c" >/dev/null || missing="$missing $c"
done
[ -z "$missing" ] || { echo "Missing commands:$missing" >&2 && exit 1; }
echo "Finish installing dependencies"
