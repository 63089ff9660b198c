"""The .ncu-rep format: reader, structural check, slimming and merging. Knows nothing else of the project."""
