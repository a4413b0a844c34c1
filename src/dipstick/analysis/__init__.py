"""Pure functions of a recording: intervals, phases, waits, telemetry, states, dips, stragglers."""
