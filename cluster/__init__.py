"""The one door to the API server: connection, client, watches, leases, events and typed errors."""
