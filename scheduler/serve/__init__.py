"""
The process: HTTP endpoints, gauges, signals.

    gauges       gauges read on scrape
    http_server  /healthz /readyz /metrics /explain
    process      signals, task group, identity
"""
