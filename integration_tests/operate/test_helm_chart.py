"""The Helm chart: rendered for several installations, and every object looked at.

Helm is built by Go where it is missing, which takes minutes, once.
"""

from __future__ import annotations

import importlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration_tests.harness.helm_program import find_helm
from tallyweir.services.local.embedded.state_directory import ROOT

#: For the test that has to build Helm first.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

_CHART = ROOT / "docker" / "kubernetes" / "tallyweir"
_KUBERNETES = "1.30"

_Object = dict[str, Any]

_PIPELINES: dict[str, object] = {
    "pipelines": {
        name: (ROOT / "spark_jobs" / "pipelines" / f"{name}.yaml").read_text()
        for name in ("departures", "page-views")
    }
}
_REACHED: dict[str, object] = {"kafka": {"bootstrap": "kafka-0:9092,kafka-1:9092"}}

#: Installations: what somebody may have in his values.
_INSTALLATIONS: dict[str, dict[str, object]] = {
    "nothing but Kafka": _REACHED,
    "two pipelines": {**_REACHED, **_PIPELINES},
    "everything": {
        **_REACHED,
        **_PIPELINES,
        "databases": True,
        "contracts": {"own.v1.avsc": "{}"},
        "image": {"registry": "registry.example.com/data/", "pullSecrets": ["pull"]},
        "alerts": {
            "enabled": True,
            "rules": "rules: {}",
            "prices": "currency: EUR",
            "secretFiles": {"OPS_SECRET": "ops"},
        },
        "monitor": {"enabled": True, "acts": True},
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "networkPolicy": {
            "postgres": {"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": [6432]},
            "ingestFrom": [{"podSelector": {}}],
            "metricsFrom": [{"namespaceSelector": {}}],
        },
    },
    "as little as possible": {
        "kafka": {"bootstrap": "kafka:9092", "secured": False},
        **_PIPELINES,
        "ingest": {"autoscaling": {"enabled": False}},
        "relay": {"enabled": False},
        "migrations": {"enabled": False},
        "networkPolicy": {"enabled": False},
    },
    **{
        f"profile {path.stem}": {**_REACHED, **_PIPELINES, "profile": str(path)}
        for path in sorted((_CHART / "profiles").glob("*.yaml"))
    },
}


@pytest.fixture(scope="module")
def helm() -> str:
    """The program."""
    return find_helm()


def _helm(helm: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [helm, *arguments], capture_output=True, text=True, check=False
    )


def _arguments(values: Mapping[str, object], directory: Path) -> list[str]:
    given = {key: value for key, value in values.items() if key != "profile"}
    file = directory / "values.json"
    file.write_text(json.dumps(given))
    profile = values.get("profile")
    files = [*([str(profile)] if profile else []), str(file)]
    return [argument for name in files for argument in ("--values", name)]


def _render(helm: str, values: Mapping[str, object], directory: Path) -> list[_Object]:
    done = _helm(
        helm,
        "template",
        "weir",
        str(_CHART),
        "--namespace=streams",
        f"--kube-version={_KUBERNETES}",
        *_arguments(values, directory),
    )
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@pytest.fixture(params=_INSTALLATIONS, scope="module")
def objects(
    request: pytest.FixtureRequest, helm: str, tmp_path_factory: pytest.TempPathFactory
) -> list[_Object]:
    """What one installation consists of."""
    directory = tmp_path_factory.mktemp("values")
    return _render(helm, _INSTALLATIONS[request.param], directory)


@pytest.fixture(scope="module")
def everything(
    helm: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], _Object]:
    """The objects of the installation that has all of them, by kind and name."""
    directory = tmp_path_factory.mktemp("values")
    found = _render(helm, _INSTALLATIONS["everything"], directory)
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def _pods(objects: list[_Object]) -> Iterator[tuple[str, _Object]]:
    """Every pod's labels and specification by a name, the executors' included."""
    for one in objects:
        name = f"{one['kind']} {one['metadata']['name']}"
        if "template" in one.get("spec", {}):
            yield name, one["spec"]["template"]
        if executor := one.get("data", {}).get("executor.yaml"):
            yield f"{name}: executor", yaml.safe_load(executor)


def test_helm_finds_nothing_wrong(helm: str, tmp_path: Path) -> None:
    """Not even a recommendation counts as good."""
    values = _arguments(_INSTALLATIONS["everything"], tmp_path)
    done = _helm(helm, "lint", "--strict", str(_CHART), *values)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 chart(s) failed" in done.stdout


@cache
def _validator() -> Any:  # noqa: ANN401 - publishes no types
    try:
        return importlib.import_module("kubernetes_validate")
    except ModuleNotFoundError:
        return None


def test_every_object_is_valid_for_kubernetes(objects: list[_Object]) -> None:
    """Against the published schemas, in which no unknown field is allowed."""
    validator = _validator()
    if validator is None:
        pytest.skip(
            "NOT TESTED: the chart's objects against Kubernetes' schemas, because "
            "kubernetes-validate is not installed"
        )
    for one in objects:
        # What the Prometheus operator defines is not Kubernetes' own.
        if one["kind"] != "PodMonitor":
            validator.validate(one, _KUBERNETES, strict=True)
    for _, pod in _pods(objects):
        executor = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
        validator.validate({**executor, "spec": pod["spec"]}, _KUBERNETES, strict=True)


def test_every_pod_is_restricted(objects: list[_Object]) -> None:
    """As the "restricted" level asks, and more: no root file system is written to."""
    pods = list(_pods(objects))
    for name, pod in pods:
        spec = pod["spec"]
        security = spec["securityContext"]
        assert security["runAsNonRoot"], name
        assert (65532, 65532) == (security["runAsUser"], security["runAsGroup"]), name
        assert {"type": "RuntimeDefault"} == security["seccompProfile"], name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        kinds = {kind for one in spec["volumes"] for kind in one if kind != "name"}
        assert kinds <= {"configMap", "emptyDir", "secret"}, name
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            assert {
                "allowPrivilegeEscalation": False,
                "privileged": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            } == container["securityContext"], name
            places = {one["mountPath"]: one for one in container["volumeMounts"]}
            writable = [p for p, one in places.items() if not one.get("readOnly")]
            assert ["/tmp"] == writable, name


def test_only_a_driver_may_talk_to_kubernetes(objects: list[_Object]) -> None:
    """Its token reaches executors of its own namespace, and nothing else."""
    for name, pod in _pods(objects):
        is_driver = pod["metadata"]["labels"]["app.kubernetes.io/component"] == "driver"
        assert is_driver == pod["spec"]["automountServiceAccountToken"], name
    accounts = [one for one in objects if one["kind"] == "ServiceAccount"]
    assert 3 == len(accounts)
    assert not any(one["automountServiceAccountToken"] for one in accounts)
    assert not [one for one in objects if one["kind"].startswith("Cluster")]
    (role,) = [one for one in objects if one["kind"] == "Role"]
    (rule,) = role["rules"]
    assert [""] == rule["apiGroups"]
    assert {"pods", "configmaps", "services", "persistentvolumeclaims"} == set(
        rule["resources"]
    )
    assert "*" not in rule["verbs"]


def test_no_object_holds_a_secret_or_asks_for_one_that_nobody_named(
    objects: list[_Object],
) -> None:
    """Secrets exist before, and each process gets that of its own role."""
    assert not [one for one in objects if one["kind"] == "Secret"]
    roles = {
        "driver": "tallyweir-publisher",
        "executor": "tallyweir-publisher",
        "resolver": "tallyweir-publisher",
        "migrations": "tallyweir-owner",
        "relay": "tallyweir-relay",
        "ingest": "tallyweir-ingest",
        "alerts": "tallyweir-alerts",
        "monitor": "tallyweir-monitor",
    }
    for name, pod in _pods(objects):
        mounted = [
            one["secret"]["secretName"]
            for one in pod["spec"]["volumes"]
            if "secret" in one
        ]
        component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        assert [roles[component]] == mounted, name
        for container in pod["spec"]["containers"]:
            variables = {one["name"] for one in container["env"]}
            assert not {"TALLYWEIR_HOME_DSN", "TALLYWEIR_DATABASES"} & variables, name


def test_every_process_has_memory_and_probes(objects: list[_Object]) -> None:
    """What runs for ever is asked whether it lives; what does not, ends in time."""
    for one in objects:
        if one["kind"] == "Job":
            assert one["spec"]["activeDeadlineSeconds"] > 0
            continue
        if one["kind"] != "Deployment":
            continue
        (container,) = one["spec"]["template"]["spec"]["containers"]
        port = 8080 if container["name"] in {"ingest", "monitor"} else 8081
        for probe, path in {
            "startupProbe": "/livez",
            "livenessProbe": "/livez",
            "readinessProbe": "/readyz",
        }.items():
            assert {"path": path, "port": port} == container[probe]["httpGet"]
        assert "memory" in container["resources"]["limits"]
        assert port in [each["containerPort"] for each in container["ports"]]


def test_a_driver_drains_and_never_meets_its_successor(
    everything: dict[tuple[str, str], _Object],
) -> None:
    """Longer than the driver's own bound for the batch at hand, 120 s."""
    deployment = everything["Deployment", "weir-tallyweir-driver-departures"]["spec"]
    assert ({"type": "Recreate"}, 1) == (deployment["strategy"], deployment["replicas"])
    pod = deployment["template"]["spec"]
    assert 150 == pod["terminationGracePeriodSeconds"]
    (container,) = pod["containers"]
    script, pipeline = container["command"][1:]
    assert "/etc/tallyweir/scripts/start-driver.sh" == script
    files = everything["ConfigMap", "weir-tallyweir-pipelines"]["data"]
    assert Path(pipeline).name in files


def test_executors_find_their_driver(
    everything: dict[tuple[str, str], _Object],
) -> None:
    """The address and ports in Spark's settings are those of the driver's Service."""
    name = "weir-tallyweir-driver-page-views"
    text = everything["ConfigMap", name]["data"]["spark-defaults.conf"]
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    settings = dict(line.split(maxsplit=1) for line in lines)
    service = everything["Service", name]["spec"]
    assert f"{name}.streams.svc" == settings["spark.driver.host"]
    assert "None" == service["clusterIP"]
    assert service["publishNotReadyAddresses"]
    deployment = everything["Deployment", name]["spec"]
    (driver,) = deployment["template"]["spec"]["containers"]
    environment = {one["name"]: one.get("value") for one in driver["env"]}
    assert [
        int(settings["spark.driver.port"]),
        int(settings["spark.driver.blockManager.port"]),
        int(environment["TALLYWEIR_CLAIMS_PORT"]),
    ] == [each["port"] for each in service["ports"]]
    assert "true" == settings["spark.authenticate"]
    account = settings["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert ("ServiceAccount", account) in everything
    labels = deployment["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    wanted: Mapping[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items() and all(
        labels.get(one["key"]) in one["values"]
        for one in selector.get("matchExpressions", [])
    )


def test_every_selector_selects_what_it_is_for(objects: list[_Object]) -> None:
    """A typing error would leave a Service, a budget or a policy without pods."""
    labels = [pod["metadata"]["labels"] for _, pod in _pods(objects)]
    components = {each["app.kubernetes.io/component"] for each in labels}
    for one in objects:
        name = f"{one['kind']} {one['metadata']['name']}"
        spec = one.get("spec", {})
        component = name.rsplit("-", 1)[-1]
        if one["kind"] == "NetworkPolicy":
            if component in {"default", "databases", "metrics"} | components:
                assert any(_selects(spec["podSelector"], each) for each in labels), name
        elif one["kind"] == "Service":
            assert any(spec["selector"].items() <= each.items() for each in labels)
        elif one["kind"] in {"PodDisruptionBudget", "PodMonitor"}:
            assert any(_selects(spec["selector"], each) for each in labels), name
        elif one["kind"] == "Deployment":
            template = spec["template"]["metadata"]["labels"]
            assert _selects(spec["selector"], template), name


def test_nobody_reaches_what_no_policy_names(
    everything: dict[tuple[str, str], _Object],
) -> None:
    """Who may connect to which of our ports from our own pods, policy by policy."""
    policies = [one for (kind, _), one in everything.items() if kind == "NetworkPolicy"]
    labels = {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["metadata"][
            "labels"
        ]
        for _, pod in _pods(list(everything.values()))
    }
    outward: dict[str, set[int]] = {}
    for component, its in labels.items():
        mine = [one["spec"] for one in policies if _selects_pod(one, its)]
        kinds = {kind for spec in mine for kind in spec["policyTypes"]}
        assert {"Ingress", "Egress"} == kinds, component
        outward[component] = {
            port["port"]
            for spec in mine
            for rule in spec.get("egress", [])
            for port in rule["ports"]
        } - {53}
    assert {
        "driver": {7080, 443, 6443, 6432, 9092},
        "executor": {7078, 7079, 7080, 7081, 6432, 9092},
        "ingest": {9092},
        "relay": {6432, 9092},
        "resolver": {6432},
        "alerts": {6432, 9092, 443, 587, 9093},
        "monitor": {6432, 9092},
        "migrations": {6432},
    } == outward


def _selects_pod(policy: _Object, labels: Mapping[str, str]) -> bool:
    return _selects(policy["spec"]["podSelector"], labels)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, "bootstrap"),
        ({"kafka": {"bootstrap": "no port"}}, "bootstrap"),
        ({**_REACHED, "kafkaa": {}}, "kafkaa"),
        ({**_REACHED, "pipelines": {"Not_A_Label": "x"}}, "Not_A_Label"),
        ({**_REACHED, "spark": {"master": "local[2]"}}, "master"),
        ({**_REACHED, "driver": {"resources": {"limits": {}}}}, "memory"),
    ],
)
def test_wrong_values_are_refused(
    helm: str, tmp_path: Path, values: dict[str, object], named: str
) -> None:
    """By the schema, before anything reaches the cluster."""
    if values.get("driver"):
        values = {**values, "driver": {"resources": {"limits": {"memory": None}}}}
    arguments = _arguments(values, tmp_path)
    done = _helm(helm, "template", "weir", str(_CHART), *arguments)
    assert done.returncode != 0
    assert named in done.stderr
