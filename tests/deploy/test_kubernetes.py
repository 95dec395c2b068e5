"""The manifests of deploy/kubernetes: each fits Kubernetes' schema, hostird knows what they set, and parts that name
each other agree. test_kubernetes_pods.py starts what they say.
"""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

sys.path.append(str(Path(__file__).parent))
from manifests import KUBERNETES, ROOT, Document, container, environment, expand, load, only, render

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli", reason="Python 3.10 reads no TOML")

BUILD = Path(os.environ.get("HOSTIR_BUILD_DIR", "build/dev")).resolve()
MESHES = ("base", "cuda", "fixed")
OF_CLI = {"HOSTIR_CA", "HOSTIR_CERT", "HOSTIR_KEY"}  # docs/cli.md
OLDEST = "1.28"  # That docs/deploy/kubernetes.md names.


@pytest.fixture(params=MESHES)
def mesh(request: pytest.FixtureRequest) -> list[Document]:
    return render(KUBERNETES / request.param)


def settings(documents: list[Document]) -> dict[str, Any]:
    return tomllib.loads(only(documents, "ConfigMap")["data"]["hostird.toml"])


def pod_spec(documents: list[Document], name: str = "hostir") -> Document:
    spec = only(documents, "StatefulSet", name)["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


# --- schema ------------------------------------------------------------------------------------------------------


def faults(document: Document, version: str) -> str:
    """Empty where the document is what Kubernetes calls one, without a field that it does not know."""
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{'.'.join(str(part) for part in error.path)}: {error.message}"
    return ""


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("folder", [*MESHES, "etcd"])
def test_documents_fit_the_schema(folder: str, version: str) -> None:
    documents = render(KUBERNETES / folder)
    assert len(documents) >= 4
    assert {d["metadata"]["name"]: f for d in documents if (f := faults(d, version))} == {}


def wrong(change: str, document: Document) -> Document:
    document = copy.deepcopy(document)
    spec = document["spec"]
    if change == "a misspelt field":
        spec["template"]["spec"]["terminationGracePeriodSecond"] = 45
    elif change == "another type":
        spec["replicas"] = "2"
    elif change == "a field that is missing":
        del spec["selector"]
    elif change == "a misspelt field, deep down":
        spec["template"]["spec"]["containers"][0]["startupProbe"]["exec"]["cmd"] = ["true"]
    elif change == "one of Kubernetes' words":
        spec["template"]["spec"]["containers"][0]["ports"][0]["protocol"] = ["TCP"]
    return document


@pytest.mark.parametrize(
    "change",
    [
        "a misspelt field",
        "another type",
        "a field that is missing",
        "a misspelt field, deep down",
        "one of Kubernetes' words",
    ],
)
def test_a_wrong_manifest_does_not_fit(change: str) -> None:
    good = only(render(KUBERNETES / "base"), "StatefulSet")
    assert faults(good, OLDEST) == ""
    assert faults(wrong(change, good), OLDEST) != ""


@pytest.mark.parametrize("folder", [*MESHES, "etcd", "cert-manager"])
def test_kubectl_renders_the_same(folder: str) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl")
    done = subprocess.run(
        ["kubectl", "kustomize", KUBERNETES / folder], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    # A digest is in the name of what is generated, and wherever that is named.
    text = re.sub(r"name: hostir-[a-z0-9]{10}$", "name: hostir", done.stdout, flags=re.M)
    ours, theirs = (
        {(d["kind"], d["metadata"]["name"]): d for d in documents}
        for documents in (render(KUBERNETES / folder), _documents(text))
    )
    assert ours == theirs


def test_the_overlay_of_the_page(tmp_path: Path) -> None:
    """That of docs/deploy/kubernetes.md, in a folder beside deploy/."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl")
    page = (ROOT / "docs/deploy/kubernetes.md").read_text()
    (overlay,) = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    shutil.copytree(KUBERNETES, tmp_path / "deploy/kubernetes")
    (tmp_path / "mesh").mkdir()
    (tmp_path / "mesh/kustomization.yaml").write_text(overlay)
    shutil.copy(KUBERNETES / "base/hostird.toml", tmp_path / "mesh")
    done = subprocess.run(
        ["kubectl", "kustomize", tmp_path / "mesh"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    documents = _documents(done.stdout)
    assert {d["metadata"]["name"]: f for d in documents if (f := faults(d, OLDEST))} == {}
    assert {d["metadata"]["namespace"] for d in documents} == {"hostir"}
    test_the_size_is_said_once_more_where_it_must(documents)
    assert only(documents, "StatefulSet")["spec"]["replicas"] == 4
    assert container(documents)["image"] == "docker.example.org/hostir-cpu:0.1.0"
    nodes = [environment(documents, pod, "hostir")["NODE_ADDRESS"] for pod in (0, 1)]
    assert nodes[0].replace("tcp:", "").replace(":7001", "") in page.replace("{n}", "0")
    # The certificate of step 3 is for these names.
    (star,) = re.findall(r"--node '\*(.*?)'", page)
    assert all(node.removesuffix(":7001").endswith(star) for node in nodes)


def _documents(text: str) -> list[Document]:
    return [document for document in yaml.safe_load_all(text) if document]


# --- hostird -------------------------------------------------------------------------------------------------------


def check_config(flags: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith("HOSTIR_")}
    command = [str(BUILD / "hostird"), *flags, "--check-config"]
    return subprocess.run(command, env=bare | variables, capture_output=True, text=True, timeout=60, check=False)


def test_hostird_knows_flags_and_settings(mesh: list[Document], tmp_path: Path) -> None:
    if not (BUILD / "hostird").exists() and not os.environ.get("HOSTIR_TESTS_NEED_DAEMON"):
        pytest.skip("this build has no daemon")
    variables = environment(mesh, 0, "default")
    names = [variables["NODE_ADDRESS"].removeprefix("tcp:").rpartition(":")[0]]
    subprocess.run([BUILD / "hostir", "certs", tmp_path / "made", "--node", *names], check=True, capture_output=True)
    tls = tmp_path / "tls"
    tls.mkdir()
    for made, mounted in {"node.pem": "tls.crt", "node.key": "tls.key", "ca.pem": "ca.crt"}.items():
        (tmp_path / "made" / made).rename(tls / mounted)
    config = tmp_path / "hostird.toml"
    config.write_text(only(mesh, "ConfigMap")["data"]["hostird.toml"].replace("/etc/hostir/tls", str(tls)))
    flags = [
        expand(flag, variables).replace("/etc/hostir/hostird.toml", str(config)) for flag in container(mesh)["args"]
    ]
    known = subprocess.run([BUILD / "hostird", "--help"], capture_output=True, text=True, check=True).stdout
    unknown = [
        name
        for name in variables
        if name.startswith("HOSTIR_")
        and name not in OF_CLI
        and not re.search(rf"^ +--{name.removeprefix('HOSTIR_').lower().replace('_', '-')}\b", known, re.M)
    ]
    has_etcd = "--cluster-name" in known
    if has_etcd:
        assert unknown == []
    else:  # There --cluster is a name.
        unknown += [name for name in ("HOSTIR_CLUSTER",) if name in variables]
    done = check_config(flags, {name: value for name, value in variables.items() if name not in unknown})
    assert done.returncode == 0, done.stderr
    told = dict(line.split(" = ", 1) for line in done.stdout.splitlines() if " = " in line)
    for key, value in settings(mesh).items():
        shown = told[key].split("  #")[0].strip().strip('"')
        assert shown.replace(str(tls), "/etc/hostir/tls") == str(value), key
    if unknown:
        pytest.skip(f"all other settings are known, but this build has no cluster by etcd: {', '.join(unknown)}")


def test_hostird_refuses_a_setting_that_it_does_not_know(tmp_path: Path) -> None:
    """So that the test above can fail."""
    if not (BUILD / "hostird").exists() and not os.environ.get("HOSTIR_TESTS_NEED_DAEMON"):
        pytest.skip("this build has no daemon")
    config = tmp_path / "hostird.toml"
    config.write_text('device = "cpu:4"\n')
    assert "did you mean devices" in check_config([f"--config={config}"], {}).stderr


def test_stopping_and_starting_have_the_time_they_need(mesh: list[Document]) -> None:
    told = settings(mesh)
    assert told["drain_timeout_ms"] + 10_000 <= pod_spec(mesh)["terminationGracePeriodSeconds"] * 1000
    startup = container(mesh)["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] * 1000 >= told["join_timeout_ms"]


# --- parts that name each other --------------------------------------------------------------------------------------


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_ports_agree(mesh: list[Document]) -> None:
    told, variables = settings(mesh), environment(mesh, 1, "default")
    ports = {port["name"]: port["containerPort"] for port in container(mesh)["ports"]}
    assert ports == {
        "client": port_of(told["listen"]),
        "metrics": port_of(told["metrics"]),
        "node": port_of(variables["NODE_ADDRESS"]),
    }
    service = only(mesh, "Service")["spec"]["ports"]
    assert {port["name"]: port["port"] for port in service} == ports
    assert {port["targetPort"] for port in service} == ports.keys()
    named = {port["port"] for rule in only(mesh, "NetworkPolicy")["spec"]["ingress"] for port in rule.get("ports", [])}
    assert named == {"client", "metrics"}  # And nodes reach each other's by any.
    annotations = only(mesh, "StatefulSet")["spec"]["template"]["metadata"]["annotations"]
    assert int(annotations["prometheus.io/port"]) == ports["metrics"]


def test_selectors_find_the_pods(mesh: list[Document]) -> None:
    for name, documents in (("hostir", mesh), ("etcd", render(KUBERNETES / "etcd"))):
        stateful = only(documents, "StatefulSet", name)["spec"]
        labels = stateful["template"]["metadata"]["labels"]
        assert stateful["serviceName"] == only(documents, "Service", name)["metadata"]["name"]
        anti = stateful["template"]["spec"]["affinity"]["podAntiAffinity"]
        terms = anti.get("requiredDuringSchedulingIgnoredDuringExecution") or [
            weighted["podAffinityTerm"] for weighted in anti["preferredDuringSchedulingIgnoredDuringExecution"]
        ]
        selectors = [
            only(documents, "Service", name)["spec"]["selector"],
            stateful["selector"]["matchLabels"],
            only(documents, "PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"],
            only(documents, "NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"],
            *(term["labelSelector"]["matchLabels"] for term in terms),
        ]
        assert len(selectors) == 5
        for selector in selectors:
            assert selector == labels


def test_policies_let_through_who_has_to(mesh: list[Document]) -> None:
    """Nodes to nodes by any port, nodes to etcd, and nobody to etcd but those two."""
    etcd = render(KUBERNETES / "etcd")
    ours, theirs = ({"podSelector": {"matchLabels": {"app.kubernetes.io/name": name}}} for name in ("hostir", "etcd"))
    policy = only(mesh, "NetworkPolicy")["spec"]
    assert {"from": [ours]} in policy["ingress"] and {"to": [ours]} in policy["egress"]
    port = {p["name"]: p["containerPort"] for p in container(etcd, "etcd")["ports"]}["client"]
    assert {"to": [theirs], "ports": [{"port": port}]} in policy["egress"]
    assert only(etcd, "NetworkPolicy", "etcd")["spec"]["ingress"] == [
        {"from": [theirs], "ports": [{"port": "client"}, {"port": "peer"}]},
        {"from": [ours], "ports": [{"port": "client"}]},
    ]


def test_variables_know_those_before_them(mesh: list[Document]) -> None:
    """The kubelet leaves $(NAME) as it is where NAME comes later."""
    for pod in range(2):
        made = environment(mesh, pod, "default")
        assert [name for name, value in made.items() if "$(" in value] == []
    etcd = container(render(KUBERNETES / "etcd"), "etcd")
    used = set(re.findall(r"\$\((\w+)\)", " ".join(etcd["command"])))
    assert used == {variable["name"] for variable in etcd["env"]}


def test_the_size_is_said_once_more_where_it_must(mesh: list[Document]) -> None:
    replicas = only(mesh, "StatefulSet")["spec"]["replicas"]
    variables = environment(mesh, 1, "default")
    if "HOSTIR_NODES" in variables:
        addresses = variables["HOSTIR_NODES"].split(",")
        assert addresses == [environment(mesh, pod, "default")["NODE_ADDRESS"] for pod in range(replicas)]
        assert variables["HOSTIR_NODE"] == "1"
        return
    assert int(variables["HOSTIR_CLUSTER_SIZE"]) == replicas
    etcd = render(KUBERNETES / "etcd")
    members = [f"etcd-{number}.etcd" for number in range(only(etcd, "StatefulSet", "etcd")["spec"]["replicas"])]
    assert variables["HOSTIR_CLUSTER"] == "etcd:" + ",".join(f"{member}:2379" for member in members)
    (initial,) = [word for word in container(etcd, "etcd")["command"] if word.startswith("--initial-cluster=")]
    peers = ",".join(f"{member.partition('.')[0]}=http://{member}:2380" for member in members)
    assert initial == f"--initial-cluster={peers}"


def test_images_are_the_container_files(mesh: list[Document]) -> None:
    name, _, tag = container(mesh)["image"].partition(":")
    kind = name.removeprefix("hostir-")
    recipe = (ROOT / f"deploy/containers/Containerfile.{kind}").read_text()
    assert f'org.opencontainers.image.title="{name}"' in recipe
    assert f'org.opencontainers.image.version="{tag}"' in recipe
    assert f'"{tag}"' in (ROOT / "csrc/base/version.h").read_text()
    user = pod_spec(mesh)["securityContext"]
    assert f"USER {user['runAsUser']}:{user['runAsGroup']}\n" in recipe
    cache = environment(mesh, 0, "default")["XDG_CACHE_HOME"]
    assert f"XDG_CACHE_HOME={cache}\n" in recipe


def test_what_is_mounted_is_what_is_read(mesh: list[Document]) -> None:
    spec, told = pod_spec(mesh), settings(mesh)
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container(mesh)["volumeMounts"]}
    secret = mounts["/etc/hostir/tls"]["secret"]
    assert secret["defaultMode"] == 0o440 and spec["securityContext"]["fsGroup"]  # tls_key: docs/configuration.md
    variables = environment(mesh, 0, "default")
    assert [told["tls_client_ca"], told["tls_cert"], told["tls_key"]] == [variables[name] for name in sorted(OF_CLI)]
    assert mounts["/dev/shm"]["emptyDir"]["medium"] == "Memory"
    assert mounts["/etc/hostir/hostird.toml"]["configMap"]["name"] == "hostir"
    # All else is read-only.
    assert container(mesh)["securityContext"]["readOnlyRootFilesystem"] is True
    assert "emptyDir" in mounts[variables["XDG_CACHE_HOME"]] and "emptyDir" in mounts["/tmp"]


@pytest.mark.parametrize(("folder", "name"), [("base", "hostir"), ("cuda", "hostir"), ("etcd", "etcd")])
def test_pods_are_as_a_restricted_namespace_wants_them(folder: str, name: str) -> None:
    """Kubernetes' Pod Security Standards, level restricted."""
    documents = render(KUBERNETES / folder)
    spec, inside = pod_spec(documents, name), container(documents, name)["securityContext"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert inside["capabilities"] == {"drop": ["ALL"]} and inside["allowPrivilegeEscalation"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert all({"emptyDir", "secret", "configMap"} & volume.keys() for volume in spec.get("volumes", []))


def test_certificates_of_cert_manager() -> None:
    """Its kinds are not Kubernetes': here is no schema of them."""
    documents = load(KUBERNETES / "cert-manager/certificates.yaml")
    certificates = {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "Certificate"}
    issuers = {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "Issuer"}
    node = certificates["hostir-node"]
    for mesh in MESHES:
        rendered = render(KUBERNETES / mesh)
        (secret,) = [v["secret"] for v in pod_spec(rendered)["volumes"] if "secret" in v]
        assert node["secretName"] == secret["secretName"]
        host = environment(rendered, 1, "default")["NODE_ADDRESS"].removeprefix("tcp:").rpartition(":")[0]
        assert node["dnsNames"] == ["*." + host.partition(".")[2]]
    assert {"server auth", "client auth"} <= set(node["usages"])  # docs/cluster.md
    assert set(certificates["hostir-client-alice"]["usages"]) == {"digital signature", "client auth"}
    for name in ("hostir-node", "hostir-client-alice"):
        authority = issuers[certificates[name]["issuerRef"]["name"]]["ca"]["secretName"]
        assert authority == certificates["hostir-authority"]["secretName"]
    assert certificates["hostir-authority"]["isCA"] is True
