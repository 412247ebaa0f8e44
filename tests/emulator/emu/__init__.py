"""The GitHub emulator: model (state machine), rest (GitHub's calls), service (the runner's calls), admin (the tests' calls)."""
