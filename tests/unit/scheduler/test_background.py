"""A task that fails ends the scheduler, whichever part started it."""

import asyncio

import pytest

from scheduler.background import BackgroundTasks
from tests.unit.scheduler.bench import Bench


class Bug(Exception):
    pass


async def fails() -> None:
    raise Bug


async def forever() -> None:
    await asyncio.Event().wait()


def test_a_failure_ends_the_group_and_the_other_tasks() -> None:
    others: list[asyncio.Task[None]] = []

    async def story() -> None:
        tasks = BackgroundTasks()
        async with tasks.group():
            others.append(tasks.start(forever()))
            tasks.start(fails())
            await forever()

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(story())
    assert (others[0].cancelled(), raised.group_contains(Bug)) == (True, True)


def test_outside_a_group_check_raises_the_first_failure() -> None:
    async def story() -> None:
        tasks = BackgroundTasks()
        tasks.start(fails())
        tasks.check()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks.check()

    with pytest.raises(Bug):
        asyncio.run(story())


def test_a_bug_while_binding_ends_the_scheduler() -> None:
    async def story() -> bool:
        bench = Bench()
        bench.node("a")
        bench.pod("p")

        async def bind(*args: object, **options: object) -> None:
            raise Bug

        bench.api.bind = bind  # type: ignore[method-assign]  # no fake API server has such a bug
        with pytest.raises(ExceptionGroup) as raised:
            await bench.scheduler.run()
        return raised.group_contains(Bug)

    assert asyncio.run(story()) is True
