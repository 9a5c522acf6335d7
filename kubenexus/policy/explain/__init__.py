"""
`kubenexus policy explain`: how policies evaluate one object.

    explain     evaluation -> explanation
    tracing     the values of expressions and of their parts
    cel_syntax  the tree of a CEL expression, for display
    text        the explanation as text
"""
