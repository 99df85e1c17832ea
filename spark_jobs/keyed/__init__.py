"""Phase 2b: users' functions on the events, the state and the timers of single keys."""
