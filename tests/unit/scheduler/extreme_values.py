"""
Random values with the extremes that an API server stores: magnitudes, lengths and counts on a log
scale, so that every size has the same chance. Names are few, so that objects refer to each other.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from policies import vocabulary

Json = dict[str, Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]

NODES = ("n0", "n1")
MOST = 2**63 - 1

WHOLE = st.builds(
    lambda bits, more: min(MOST, max(0, 2**bits + more)), st.integers(0, 63), st.integers(-1, 1)
)
SIZE = st.integers(0, 20).map(lambda bits: 2**bits)
LENGTH = st.integers(0, 13).map(lambda bits: 2**bits)
TEXT = st.one_of(
    st.text(max_size=8),
    st.builds(lambda c, n: c * n, st.sampled_from("19a.-/,=é€\U0001f600\x00"), LENGTH),
    st.sampled_from(
        ("true", "false", "0", "-1", "1e400", "NaN", "null", "{}", "[]", '{"numa":[0]}')
    ),
)
SMALL = st.sampled_from(("0", "1m", "100m", "1", "0.3333"))
QUANTITY = st.one_of(
    SMALL,
    st.sampled_from(("9E", "8Ei", "1e30", "9223372036854775807")),
    st.builds(lambda n, unit: f"{n}{unit}", WHOLE, st.sampled_from(("", "m", "k", "Ei", "E", "n"))),
)
DURATION = st.one_of(
    st.builds(lambda n, unit: f"{n}{unit}", WHOLE, st.sampled_from(("ns", "ms", "s", "m", "h"))),
    TEXT,
)
TIME = st.sampled_from(
    (
        "0001-01-01T00:00:00Z",
        "1970-01-01T00:00:00Z",
        "1970-01-01T00:01:40Z",
        "2026-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59.999999Z",
    )
)
NAME = st.sampled_from(("a", "b"))
NODE = st.sampled_from(NODES)
KEY = st.sampled_from(("app", "zone", "kubernetes.io/hostname", vocabulary.TENANT_LABEL))
LABELS = st.dictionaries(KEY, NAME, max_size=2)
RESOURCE = st.sampled_from(
    ("cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi", "example.com/x", "ephemeral-storage")
)
MEMBER_RESOURCE = st.sampled_from(("cpu", "memory", "nvidia.com/gpu"))
STATED = st.dictionaries(MEMBER_RESOURCE, QUANTITY, min_size=1, max_size=2).map(
    lambda amounts: ",".join(f"{name}={text}" for name, text in amounts.items())
)
AMOUNTS = st.dictionaries(RESOURCE, QUANTITY, max_size=3)
SELECTOR = st.one_of(
    st.none(),
    st.fixed_dictionaries({"matchLabels": LABELS}),
    st.fixed_dictionaries(
        {
            "matchExpressions": st.lists(
                st.fixed_dictionaries(
                    {
                        "key": KEY,
                        "operator": st.sampled_from(("In", "NotIn", "Exists", "Gt", "Lt")),
                        "values": st.lists(st.one_of(NAME, TEXT), max_size=2),
                    }
                ),
                max_size=2,
            )
        }
    ),
)
JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), WHOLE, WHOLE.map(lambda n: -n), st.floats(), TEXT, TIME),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def _nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


# Deeper documents are refused by the parser of the watch.
DEEP = st.integers(0, 7).map(lambda bits: _nested(2**bits))


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional=fields)


def listed(*, most: int = 2, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Json]]:
    return st.lists(st.fixed_dictionaries(fields), max_size=most)


def about(name: st.SearchStrategy[str] = NAME, **more: st.SearchStrategy[Any]) -> Any:
    return st.fixed_dictionaries(
        {
            "name": name,
            "namespace": st.just("ns"),
            "uid": st.uuids().map(str),
            "labels": LABELS,
            "creationTimestamp": TIME,
            **more,
        }
    )
