"""Consumer groups: what is committed of them (`state`), how it gets there (`store`), who looks after it (`groups`)."""
