"""
The admission webhook: reads an AdmissionReview, decides on it, answers.

    admission/      decisions: mutate, validate, guard; pure
    facts/          cluster facts that a decision needs
    metrics         Prometheus metrics
    policy_source/  policies from files and policy objects
    registration/   the webhook configurations and their rules
    review/         the AdmissionReview protocol
    serve/          gunicorn, TLS, routes
"""
