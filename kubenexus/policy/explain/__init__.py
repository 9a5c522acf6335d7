"""
`kubenexus policy explain`.

    cel_syntax  CEL expression tree for display
    explain     policy explain
    text        its text form
    tracing     trace expression values
"""
