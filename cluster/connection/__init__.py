"""
How to reach the API server, and as whom.

    connection  which server, as whom
    kubeconfig  kubeconfig files
"""
