"""Who gets the room when there is not enough: quotas, shares, and what is kept for whom."""
