"""The cluster metadata log: its topics, brokers and features, and the settings of a topic."""
