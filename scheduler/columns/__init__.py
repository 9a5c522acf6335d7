"""
The node table: one row per node, one column per resource.

    images       image index by row
    label_match  label selectors over all rows (parsing moves to model/label_selector)
    node_table   columnar node table: one row a node
"""
