"""How far a trained run can be trusted: bands, an audit, what it saves, do its numbers hold."""
