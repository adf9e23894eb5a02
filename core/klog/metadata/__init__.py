"""The cluster metadata log: what it says of topics and brokers, and the settings that hold for a topic."""
