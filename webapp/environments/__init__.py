"""What the designer wrote: candidates, environments, hints, regret, designer rewards, memory and corpus documents."""
