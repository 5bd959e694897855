"""An alert: findings of many ranks and steps that are the same one, its state and its words."""
