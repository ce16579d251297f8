"""The engine: trials, the queue that runs them, their results, and the pages made of them."""
