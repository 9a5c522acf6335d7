"""The command people type: webhook, scheduler, policy, simulate, dev."""
