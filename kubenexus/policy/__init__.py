"""
`kubenexus policy`: the tools of policy authors, on the engine that serves admission.

    cli          options and exit codes
    lint         every fault of policy files at once
    policy_test  run PolicyTest documents, and list rules without a test
    explain      evaluate one object, expression by expression
    bench        the cost of each policy, against a saved baseline
    export       policies as ValidatingAdmissionPolicy and MutatingAdmissionPolicy
    version      the CEL engine in use
    inputs       the files that a command reads
    errors       errors of the commands

Each command is a pure function from inputs to a report, with its text and JSON forms.
"""
