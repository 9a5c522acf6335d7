"""
`kubenexus policy`: the tools of policy authors, over the engine that serves admission.

    lint      everything that is wrong with policy files, at once
    test      PolicyTest documents against policies, and which rules no test has met
    explain   what policies make of one object, expression by expression
    bench     what each policy costs, against a saved baseline
    export    the part that Kubernetes can evaluate itself
    schema    the JSON Schemas of the documents
    version   the CEL engine in use

One module a command, each a pure function from inputs to a report, with its text and JSON forms
beside it; `cli` reads options and sets exit codes. Nothing here decides what a policy means.
"""
