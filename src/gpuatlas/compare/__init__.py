"""From the tables of the captures to tidy figures: classes, pipes, stalls, caches, priorities, and claims."""
