import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from policies.engine import loader
from policies.engine.loader import LoadResult
from tests.policy_builders import a_compiler, a_platform_policy, a_rule, a_tenant_policy

Json = dict[str, Any]


def load(path: Path) -> LoadResult:
    return loader.load_files(path, compiler=a_compiler())


def lines(result: LoadResult, folder: Path) -> list[str]:
    return [str(problem).replace(f"{folder}/", "") for problem in result.problems]


def write(folder: Path, files: dict[str, str | Json | list[Json]]) -> None:
    for name, said in files.items():
        documents = said if isinstance(said, list) else [said]
        text = said if isinstance(said, str) else yaml.safe_dump_all(documents, sort_keys=False)
        (folder / name).write_text(str(text))


TENANT_A = a_tenant_policy("team-a", tenant="a")
TENANT_B = a_tenant_policy("team-b", tenant="b")
BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("files", "want"),
    [
        pytest.param(
            {"a.yaml": [TENANT_A, TENANT_B]},
            [
                "a.yaml:15:11: spec.tenant.name: found tenant 'b' in the file of tenant 'a'; a file"
                " has one tenant, so move this policy to a file of its own"
            ],
            id="a policy of another tenant in the file of one",
        ),
        pytest.param(
            {"a.yaml": TENANT_A, "b.yaml": a_tenant_policy("more", tenant="a")},
            [
                "b.yaml:7:11: spec.tenant.name: tenant 'a' has its policies in a.yaml; move this one there"
            ],
            id="a tenant has two files",
        ),
        pytest.param(
            {
                "a.yaml": a_tenant_policy(
                    namespaceSelector={"matchLabels": {"tenant.kubenexus.io/name": "b"}}
                )
            },
            [
                "a.yaml:10:33: spec.namespaceSelector.matchLabels['tenant.kubenexus.io/name']: a"
                " policy of tenant 'a' selects the namespaces of tenant 'b'; want 'a'"
            ],
            id="a tenant's policy selects another tenant's namespaces",
        ),
        pytest.param(
            {
                f"{tenant}.yaml": a_tenant_policy(
                    tenant,
                    tenant=tenant,
                    namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "web"}},
                )
                for tenant in ("a", "b")
            },
            [
                "b.yaml:10:36: spec.namespaceSelector.matchLabels['kubernetes.io/metadata.name']:"
                " namespace 'web' belongs to tenant 'a' by that tenant's policy; a namespace has"
                " one tenant"
            ],
            id="two tenants name one namespace",
        ),
        pytest.param(
            {
                "a.yaml": [
                    a_tenant_policy("one", tenant="a", tier="gold"),
                    a_tenant_policy("two", tenant="a", tier="silver"),
                ]
            },
            [
                "a.yaml:17:11: spec.tenant.tier: found 'silver', but another policy of tenant 'a'"
                " sets 'gold'"
            ],
            id="two policies of a tenant differ about its tier",
        ),
        pytest.param(
            {"a.yaml": a_platform_policy("x"), "b.yaml": a_platform_policy("x")},
            [
                "b.yaml:4:9: metadata.name: a policy named 'x' stands in a.yaml already; choose"
                " another name"
            ],
            id="two policies of one name",
        ),
        pytest.param(
            {
                "a.yaml": a_platform_policy(
                    "x", tiers=[{"name": "gold", "rank": 1}, {"name": "tin", "rank": 1}]
                )
            },
            ["a.yaml:10:11: spec.tiers[1].rank: tier rank 1 is given in x (a.yaml) already"],
            id="two tiers of one rank",
        ),
        pytest.param(
            {
                f"{name}.yaml": a_platform_policy(
                    name, hardware=[{"models": ["T4"], "tier": "economy", "vram": "16Gi"}]
                )
                for name in ("x", "y")
            },
            [
                "y.yaml:8:7: spec.hardware[0].models[0]: GPU model 'T4' is given in x (x.yaml)"
                " already"
            ],
            id="a GPU model in two tables",
        ),
        pytest.param(
            {"a.yaml": a_tenant_policy(tier="platinum")},
            ["a.yaml:8:11: spec.tenant.tier: found 'platinum', want one of gold, silver, bronze"],
            id="a tier that no policy defines",
        ),
        pytest.param(
            {
                "a.yaml": a_tenant_policy(
                    tier="tin",
                    classify={"hardwareTier": [{"when": "object != null", "value": "premium"}]},
                ),
                "b.yaml": a_platform_policy(
                    "c",
                    tiers=[{"name": "tin", "rank": 0, "hardwareTiers": {"allowed": ["economy"]}}],
                ),
            },
            [
                "a.yaml:12:14: spec.classify.hardwareTier[0].value: found 'premium', but tier tin"
                " may use economy"
            ],
            id="a rule that gives hardware beyond the tenant's tier",
        ),
        pytest.param(
            {"a.yaml": "kind: Pod\napiVersion: v1\n"},
            [
                "a.yaml:1:7: kind: found kind 'Pod', want PlatformPolicy, TenantPolicy or PolicyTest"
                " of policy.kubenexus.io/v1alpha1"
            ],
            id="an unknown kind",
        ),
        pytest.param(
            {"a.yaml": {**a_platform_policy("x"), "kind": "ClusterPolicy"}},
            [
                "a.yaml:2:7: kind: found kind 'ClusterPolicy', renamed to PlatformPolicy:"
                " write that kind"
            ],
            id="the kind that was renamed",
        ),
        pytest.param(
            {"a.yaml": "- 1\n"},
            [
                "a.yaml:1:1: found list, want a map: a PlatformPolicy, TenantPolicy or PolicyTest of"
                " policy.kubenexus.io/v1alpha1"
            ],
            id="no map at all",
        ),
        pytest.param(
            {"a.yaml": "kind: TenantPolicy\n\tspec: {}\n"},
            ["a.yaml:2:1: not YAML: a tab stands where spaces belong; indent with spaces"],
            id="a tab",
        ),
        pytest.param(
            {"a.yaml": "kind: TenantPolicy\nkind: PlatformPolicy\n"},
            ["a.yaml:2:1: key 'kind' stands twice in one map; remove one"],
            id="a key twice",
        ),
        pytest.param(
            {"a.yaml": "x: '" + "y" * 10_000_000 + "'"},
            ["a.yaml: the file has 10000005 bytes, at most 3145728 are read; split it"],
            id="ten megabytes",
        ),
        pytest.param(
            {"a.yaml": "kind: TenantPolicy\n", "b.yaml": TENANT_B},
            [
                "a.yaml:1:1: apiVersion: this field is required; add it",
                "a.yaml:1:1: metadata: this field is required; add it",
                "a.yaml:1:1: spec: this field is required; add it",
            ],
            id="a bad file beside a good one",
        ),
    ],
)
def test_faults_of_a_set(
    tmp_path: Path, files: dict[str, str | Json | list[Json]], want: list[str]
) -> None:
    write(tmp_path, files)
    assert lines(load(tmp_path), tmp_path) == want


def test_an_alias_bomb_is_rejected_where_it_grows(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": BOMB})
    [line] = lines(load(tmp_path), tmp_path)
    assert "unfolds to more than 250000 values; write fewer aliases or split the file" in line


def test_a_missing_file_is_a_fault(tmp_path: Path) -> None:
    assert lines(load(tmp_path / "a.yaml"), tmp_path) == ["a.yaml: no such file; check the path"]


def test_a_mounted_config_map_is_read_once_through_its_links(tmp_path: Path) -> None:
    first = tmp_path / "..2026_01_01"
    first.mkdir()
    write(first, {"a.yaml": TENANT_A})
    (tmp_path / "..data").symlink_to("..2026_01_01")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    (tmp_path / ".hidden.yaml").write_text("not a policy")
    (tmp_path / "notes.txt").write_text("not a policy")
    (tmp_path / "folder.yaml").mkdir()
    result = load(tmp_path)
    assert (result.problems, [policy.name for policy in result.policies.policies]) == (
        (),
        ["team-a"],
    )


def test_objects_of_the_server_pass_the_same_models(tmp_path: Path) -> None:
    good = {**TENANT_A, "status": {"conditions": []}}
    good["metadata"] = {"name": "team-a", "generation": 3, "managedFields": [{}], "uid": "u"}
    bad = a_platform_policy("b", validations=[a_rule("1 +")])
    odd = a_tenant_policy("c", tenant="c", tier="tin")
    result = loader.compile_all(loader.read_objects([good, bad, odd]), compiler=a_compiler())
    assert [(row.source, row.path) for row in result.problems] == [
        ("PlatformPolicy/b", "spec.validations[0].expression"),
        ("TenantPolicy/c", "spec.tenant.tier"),
    ]
    assert [policy.name for policy in result.policies.policies] == ["team-a", "c"]


def test_the_digest_depends_on_contents_and_not_on_formatting(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    write(a, {"x.yaml": TENANT_A, "y.yaml": TENANT_B})
    write(b, {"z.yaml": "# a comment\n" + yaml.safe_dump(TENANT_A), "a.yaml": TENANT_B})
    other = loader.compile_all(
        loader.read_objects([TENANT_A]), compiler=a_compiler()
    ).policies.digest
    digests = {load(a).policies.digest, load(b).policies.digest}
    assert len(digests) == 1
    assert other not in digests


def test_an_unreadable_file_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"x: \xff")
    assert lines(load(tmp_path), tmp_path) == [
        "a.yaml: byte 3 is not UTF-8; save the file as UTF-8"
    ]


def test_a_dangling_link_is_a_fault(tmp_path: Path) -> None:
    os.symlink("nowhere", tmp_path / "a.yaml")
    assert lines(load(tmp_path), tmp_path) == ["a.yaml: no such file; check the path"]


FAULTY = """apiVersion: policy.kubenexus.io/v1alpha1
kind: TenantPolicy
metadata: {name: a}
spec:
  tenant: {name: a}
  {PART}
  validations:
  - {name: one, expression: "object.spec.contaners.size() > 0"}
  - {name: two, expression: "true", action: Block}
"""


@pytest.mark.parametrize(
    ("part", "want"),
    [
        pytest.param(
            "params: {}", ["8:41", "9:45"], id="a detail and an expression, both reported"
        ),
        pytest.param(
            "varables: []", ["6:13", "9:45"], id="what rests on a lost part is not blamed"
        ),
    ],
)
def test_schema_and_expressions_are_checked_together(
    part: str, want: list[str], tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(FAULTY.replace("{PART}", part))
    result = load(tmp_path)
    assert [f"{fault.line}:{fault.column}" for fault in result.problems] == want
    assert result.policies.policies == ()
