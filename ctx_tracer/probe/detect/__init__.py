"""One module per question asked of a region; each says which rules it decides."""
