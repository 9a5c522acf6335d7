"""
`kubenexus policy test`.

    junit   JUnit XML
    runner  policy test
"""
