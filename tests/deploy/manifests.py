"""Manifests of deploy/kubernetes as a cluster gets them: the few parts of kustomize that they use, without kubectl."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
Document = dict[str, Any]

# Lists that a patch merges, and by which key; any other list it replaces.
_MERGED_BY = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath"}


def load(path: Path) -> list[Document]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def merge(base: Any, patch: Any, name: str = "") -> Any:
    """A strategic merge. Items that the patch names come first in a list that is merged, as kustomize has it."""
    if isinstance(patch, dict) and isinstance(base, dict):
        merged = {key: value for key, value in base.items() if patch.get(key, "") is not None}
        for key, value in patch.items():
            if value is not None:
                merged[key] = merge(base.get(key), value, key)
        return merged
    if isinstance(patch, list) and isinstance(base, list) and name in _MERGED_BY:
        key = _MERGED_BY[name]
        before = {item[key]: item for item in base}
        kept = [item for item in patch if item.get("$patch") != "delete"]
        named = {item[key] for item in patch}
        return [merge(before.get(item[key], {}), item) for item in kept] + [
            item for item in base if item[key] not in named
        ]
    return copy.deepcopy(patch)


def _with_images(value: Any, images: list[Document]) -> Any:
    if isinstance(value, list):
        return [_with_images(item, images) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {key: _with_images(item, images) for key, item in value.items()}
    for image in images:
        name, _, tag = changed.get("image", "").partition(":") if isinstance(changed.get("image"), str) else ("",) * 3
        if name == image["name"]:
            changed["image"] = f"{image.get('newName', name)}:{image.get('newTag', tag)}"
    return changed


def render(folder: Path) -> list[Document]:
    """The documents of a kustomization. Names of generated ones have no digest."""
    (settings,) = load(folder / "kustomization.yaml")
    known = {"apiVersion", "kind", "resources", "configMapGenerator", "images", "patches"}
    assert settings.keys() <= known, f"{folder}: render() knows no {settings.keys() - known}"
    documents: list[Document] = []
    for resource in settings["resources"]:
        path = folder / resource
        documents += render(path) if path.is_dir() else load(path)
    for generated in settings.get("configMapGenerator", []):
        made = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": generated["name"]},
            "data": {name: (folder / name).read_text() for name in generated["files"]},
        }
        if generated.get("behavior") == "replace":
            documents = [document for document in documents if not is_same(document, made)]
        documents.append(made)
    for patch in settings.get("patches", []):
        for change in load(folder / patch["path"]):
            (at,) = [index for index, document in enumerate(documents) if is_same(document, change)]
            documents[at] = merge(documents[at], change)
    return [_with_images(document, settings.get("images", [])) for document in documents]


def is_same(one: Document, other: Document) -> bool:
    return (one["kind"], one["metadata"]["name"]) == (other["kind"], other["metadata"]["name"])


def only(documents: list[Document], kind: str, name: str = "hostir") -> Document:
    (found,) = [d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name]
    return found


def container(documents: list[Document], name: str = "hostir") -> Document:
    (found,) = only(documents, "StatefulSet", name)["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def environment(documents: list[Document], pod: int, namespace: str) -> dict[str, str]:
    """The variables of one pod of hostir, as the kubelet makes them: $(NAME) is a variable that came before."""
    fields = {
        "metadata.name": f"hostir-{pod}",
        "metadata.namespace": namespace,
        "metadata.labels['apps.kubernetes.io/pod-index']": str(pod),
    }
    made: dict[str, str] = {}
    for variable in container(documents)["env"]:
        if "valueFrom" in variable:
            made[variable["name"]] = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            made[variable["name"]] = expand(variable["value"], made)
    return made


def expand(text: str, variables: dict[str, str]) -> str:
    """$(NAME) stays as it is where there is no such variable."""
    return re.sub(r"\$\((\w+)\)", lambda found: variables.get(found[1], found[0]), text)
