"""How replicas follow a leader: epochs, truncation, election; pure functions that read no disk."""
