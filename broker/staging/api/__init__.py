"""Handler: `lockstep_staged`, for writers of staged appends."""
