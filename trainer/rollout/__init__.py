"""Generation: the sampler interface, its engines, token accounting and the episode driver."""
