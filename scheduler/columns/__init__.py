"""
The node table: one row per node, one column per resource.

    codes        values of a column as codes, renumbered as values go out of use
    images       which images are on which rows
    label_match  label selectors over all rows
    node_table   the columns: amounts, labels, taints, features
    saturation   sums of amounts that never leave an int64
"""
