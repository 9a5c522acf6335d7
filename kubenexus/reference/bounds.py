"""The bounds of what users write, from `policies.bounds`."""

from collections.abc import Iterator

from kubenexus.reference import markdown
from policies import bounds
from policies.bounds import Bound


def page() -> str:
    return markdown.page(
        "Bounds",
        "How long and how large a value may be. Admission denies a value beyond its bound, with the"
        " key, what it found and the bound. It compares the length before it parses the text.",
        "The scheduler also meets objects that admission did not see, such as pods that are older"
        " than the webhook. Such a value harms no other pod. A text that is too long is not read:"
        " it counts as absent, and a pending pod with it stays unschedulable, with the message of"
        " admission. A number that is too large counts as the bound where the last column says so,"
        " otherwise as absent.",
        markdown.table(
            ("Value", "Characters", "Largest", "A larger number in the scheduler"), _bounds()
        ),
        f"A gang has at most {bounds.DEFAULT_GANG_SIZE} pods where no PlatformPolicy sets"
        f" `spec.gang.maxSize`, which may be up to {bounds.GANG_SIZE.limit}. Quotas are amounts of"
        " a whole cluster and have a bound in characters only.",
        "## Keys and fields",
        markdown.table(("Value", "Keys", "Fields"), _places()),
        "## Fields that admission leaves to the API server",
        "The API server accepts them with any value, and so does admission. The scheduler counts at"
        " most the bound. Requests of any size are accepted as well: a pod that requests more than"
        " any node has stays pending.",
        markdown.table(("Field", "Counts at most"), _tolerated()),
    )


def _bounds() -> Iterator[tuple[str, str, str, str]]:
    for row in bounds.ROWS:
        beyond = "" if row.largest is None else "the bound" if row.saturates else "absent"
        yield row.name, str(row.longest or ""), row.limit, beyond


def _places() -> Iterator[tuple[str, str, str]]:
    for row in bounds.ROWS:
        yield row.name, _keys(row), ", ".join(map(_field, row.fields))


def _keys(row: Bound) -> str:
    return ", ".join(f"{key.place[:-1]} `{key.name}`" for key in row.keys)


def _field(text: str) -> str:
    kind, _, path = text.partition(" ")
    return f"{kind} {markdown.code(path)}" if path.startswith("spec.") else text


def _tolerated() -> Iterator[tuple[str, str]]:
    for row in bounds.ROWS:
        for field in row.tolerated:
            yield _field(field), row.limit
