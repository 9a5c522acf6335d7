"""
The HTTP side: gunicorn, TLS, routes.

    app             Flask routes and the in-loop fast path
    client_auth     which client may call which path
    decision_queues requests between the loop and the decision
    fair_queue      requests by namespace, least CPU first
    http_framing    end of an HTTP/1.1 request
    http_responses  HTTP responses as bytes
    metrics_server  /metrics on a port of its own
    server          gunicorn process, options
    tls             certificate reload, client name
    worker          gunicorn worker: one loop, whole requests only
"""
