"""What every kernel stands on: declaration, session, comparison, data, sizes, closed forms, the PLMR limits."""
