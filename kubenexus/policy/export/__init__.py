"""
`kubenexus policy export`: policies as Kubernetes' own admission policies.

    cel       expressions Kubernetes can evaluate
    export    VAP and MAP objects
    mutation  defaults as one JSON Patch expression
"""
