"""
Why a pod is pending: diagnosis and the /explain endpoint.

    diagnosis   nearest node, changes that would help
    inspection  one pod as the scheduler sees it now
    inspector   look up a pod and explain it; "reserved for others" sentences
    response    /explain as JSON
"""
