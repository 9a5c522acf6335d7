"""
`kubenexus audit`: what exists and would not be admitted today.

    discovery   which kinds the API server has of those that are judged
    scan        every object of them, page by page, each laid before the judge
    judging     one object under the policies in force, with the code of the webhook; pure
    report      rows and sums as text and as JSON lines; pure

Found are objects that were made while the webhook was off, before a policy was, or under an
exception that has ended. Nothing is changed, and nobody is told but the caller.
"""
