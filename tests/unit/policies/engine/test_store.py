from pathlib import Path

from policies.engine import loader, store
from policies.engine.loader import LoadResult, Reading
from policies.engine.store import FileWatch, PolicyLoader, Status, Store
from tests.policy_builders import a_compiler, a_platform_policy, a_rule

GOOD = a_platform_policy("good")
BETTER = a_platform_policy("good", validations=[a_rule("object != null")])
BAD = a_platform_policy("bad", validations=[a_rule("1 +")])


def result(*documents: dict[str, object]) -> LoadResult:
    return loader.compile_all(loader.read_objects(documents), compiler=a_compiler())


def test_a_bad_set_leaves_the_last_good_one_in_force_with_its_faults() -> None:
    policy_store = Store()
    before = policy_store.status()
    taken = [
        policy_store.offer(result(GOOD), at=1.0),
        policy_store.offer(result(BAD), at=2.0),
    ]
    good, bad = result(GOOD).policies, result(BAD)
    assert (
        before,
        taken,
        policy_store.current.digest,
        policy_store.status(),
        policy_store.status().ready,
    ) == (
        Status("", 0, 0, None),
        [True, False],
        good.digest,
        Status(good.digest, 1, 1, 1.0, bad.problems),
        True,
    )


def test_a_good_set_clears_the_faults_of_a_bad_one() -> None:
    policy_store = Store()
    for number, documents in enumerate([[GOOD], [BAD], [BETTER], [BETTER], []]):
        policy_store.offer(result(*documents), at=float(number))
    # The same set again is no new generation; an empty set is a set too.
    assert policy_store.status() == Status(result().policies.digest, 0, 3, 4.0)


def test_nothing_is_ready_before_the_first_good_set() -> None:
    policy_store = Store()
    policy_store.offer(result(BAD), at=1.0)
    assert not policy_store.status().ready


def test_files_are_read_again_only_when_they_changed(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("kind: A\n")
    watch = FileWatch([tmp_path])
    seen = [watch.poll() is not None, watch.poll() is not None]
    file.write_text("kind: Longer\n")
    seen += [watch.poll() is not None, watch.poll() is not None]
    (tmp_path / "b.yaml").write_text("kind: B\n")
    seen += [watch.poll() is not None, watch.poll() is not None]
    file.unlink()
    seen += [watch.poll() is not None, watch.poll() is not None]
    assert seen == [True, False] * 4


def test_the_swap_of_a_config_map_is_seen(tmp_path: Path) -> None:
    for name in ("..one", "..two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text("kind: A\n")
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    before = store.fingerprint([tmp_path])
    (tmp_path / "..new").symlink_to("..two")
    (tmp_path / "..new").replace(tmp_path / "..data")
    assert store.fingerprint([tmp_path]) != before


def test_a_folder_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("1")
    readings: list[str] = []

    def read(paths: object) -> Reading:
        readings.append(file.read_text())
        if len(readings) == 1:
            file.write_text("changed meanwhile")
        return Reading()

    watch = FileWatch([tmp_path], read=read)
    assert (watch.poll(), watch.poll(), readings) == (Reading(), None, ["1", "changed meanwhile"])


def test_a_folder_that_is_gone_has_a_fingerprint_too(tmp_path: Path) -> None:
    gone = store.fingerprint([tmp_path / "gone"])
    assert gone == store.fingerprint([tmp_path / "gone"])
    assert gone != store.fingerprint([tmp_path])


def test_files_and_objects_are_one_set(tmp_path: Path) -> None:
    policies = PolicyLoader([tmp_path], wait_for_objects=True)
    outcomes = [policies.load(at=0.0)]
    policies.put_objects((GOOD,))
    outcomes += [policies.load(at=1.0), policies.load(at=2.0)]
    (tmp_path / "bad.yaml").write_text("kind: Bad\n")
    outcomes.append(policies.load(at=3.0))
    (tmp_path / "bad.yaml").unlink()
    policies.put_objects((BETTER,))
    outcomes.append(policies.load(at=4.0))
    status = policies.store.status()
    assert [None if loaded is None else loaded.in_force for loaded in outcomes] == [
        None,  # the objects are not known yet
        True,
        None,  # nothing changed
        False,
        True,
    ]
    assert (status.generation, status.faults, policies.objects) == (2, (), (BETTER,))


def test_the_fallback_is_in_force_until_a_good_set_comes(tmp_path: Path) -> None:
    policies = PolicyLoader([], fallback=(loader.LIBRARY,))
    policies.put_objects((BAD,))
    first = policies.load(at=0.0)
    fallback = policies.store.current.digest
    policies.put_objects((GOOD,))
    policies.load(at=1.0)
    policies.put_objects((BAD,))
    policies.load(at=2.0)
    assert first is not None
    assert (first.in_force, len(first.faults), fallback, policies.store.current.digest) == (
        False,
        1,
        loader.load_files(loader.LIBRARY, compiler=a_compiler()).policies.digest,
        result(GOOD).policies.digest,
    )
