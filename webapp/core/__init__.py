"""What every page is made of: the shell, the design system's template tags, middleware, health. No product models."""
