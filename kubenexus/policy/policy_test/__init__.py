"""
`kubenexus policy test`.

    runner  run PolicyTests and measure their coverage
    junit   results as JUnit XML
"""
