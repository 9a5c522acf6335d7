"""
`kubenexus why pod/x`: explains why a pod waits, with the data of the running scheduler.

    cli       the command and its exit codes
    client    finds the leader and calls its /explain endpoint
    render    the response as text

The command decides nothing: it prints what the scheduler has seen and tried.
"""
