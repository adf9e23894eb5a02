"""How clients put a key into a partition."""
