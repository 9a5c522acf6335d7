"""
What an installation needs done at its turning points, as commands that the chart's hooks run.

    before     certificates   make or rotate the webhook's certificate, without cert-manager
    after      register       once the webhook answers, tell the API server about it
               probe          through the API server: is a pod admitted, is a bad Job refused
    at the end cleanup        the registration goes first, then what was left on pods

`chart` and `roles` make those parts of the chart that come from code.
"""
