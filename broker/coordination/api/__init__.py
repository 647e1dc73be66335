"""Handler: `find_coordinator`, for groups and transactions."""
