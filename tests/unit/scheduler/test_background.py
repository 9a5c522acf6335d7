"""A task that fails concerns its part; one that cannot be isolated ends the scheduler."""

import asyncio
from typing import Any

import pytest

from scheduler.background import BackgroundTasks
from scheduler.errors import CorruptState
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.faults import Bug


async def fails(error: Exception) -> None:
    raise error


async def forever() -> None:
    await asyncio.Event().wait()


def test_an_error_goes_to_the_part_that_started_the_task() -> None:
    async def story() -> list[str]:
        heard: list[str] = []
        tasks = BackgroundTasks(lambda error: heard.append(f"default {error}"))
        async with tasks.group():
            tasks.start(fails(Bug("a")), lambda error: heard.append(f"own {error}"))
            tasks.start(fails(Bug("b")))
        tasks.start(fails(Bug("c")), lambda error: heard.append(f"own {error}"))
        await asyncio.sleep(0)
        tasks.check()
        return heard

    assert asyncio.run(story()) == ["own a", "default b", "own c"]


def test_a_corrupt_state_ends_the_group_and_the_other_tasks() -> None:
    others: list[asyncio.Task[None]] = []
    heard: list[Exception] = []

    async def story() -> None:
        tasks = BackgroundTasks(heard.append)
        async with tasks.group():
            others.append(tasks.start(forever()))
            tasks.start(fails(CorruptState()))
            await forever()

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(story())
    assert (others[0].cancelled(), raised.group_contains(CorruptState), heard) == (True, True, [])


def test_outside_a_group_check_raises_the_first_failure() -> None:
    async def story() -> None:
        tasks = BackgroundTasks()
        tasks.start(fails(Bug()))
        tasks.check()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks.check()

    with pytest.raises(Bug):
        asyncio.run(story())


def test_a_corrupt_state_while_binding_ends_the_scheduler() -> None:
    async def story() -> bool:
        bench = Bench()
        bench.node("a")
        bench.pod("p")

        def undone(uid: str) -> None:
            raise CorruptState

        bench.scheduler.cache.confirm = undone  # type: ignore[method-assign]  # no other way
        with pytest.raises(ExceptionGroup) as raised:
            async with asyncio.timeout(5):
                await bench.scheduler.run()
        return raised.group_contains(CorruptState)

    assert asyncio.run(story()) is True


def test_a_bug_while_binding_ends_with_its_unit() -> None:
    async def story() -> dict[str, str]:
        bench = Bench()
        bench.node("a")
        for name in ("p", "bad", "q"):
            bench.pod(name)
        bind = bench.api.bind

        async def raises(namespace: str, pod: str, *args: Any, **options: Any) -> None:
            if pod == "bad":
                raise Bug
            await bind(namespace, pod, *args, **options)

        bench.api.bind = raises  # type: ignore[method-assign]  # no fake has such a bug
        running = asyncio.create_task(bench.scheduler.run())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return bench.api.nodes()

    assert asyncio.run(story()) == {"p": "a", "bad": "", "q": "a"}
