"""Several machines, as docs/howto/scale-out.md and the Dockerfile have them: commands run as printed, and everything
that other programs read says what Checkrein takes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]

from checkrein.timings import SHUT_DOWN_SECONDS
from tests.support.docs import ROOT, Block, blocks_of, environment_of_a_user, parsed
from tests.support.postgres import NOBODY, binaries

PAGE: Final = ROOT / "docs" / "howto" / "scale-out.md"
BLOCKS: Final = list(blocks_of(PAGE))
YAML: Final = [block for block in BLOCKS if block.language == "yaml"]
AFTER_SHUTDOWN_SECONDS: Final = 15
"""What ends a tool that does not finish, and everything else, takes no longer."""
PATIENCE_SECONDS: Final = 600


def named(file: str) -> Block:
    (found,) = [block for block in BLOCKS if block.file == file]
    return found


# -- commands


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that the server may come through, which does not run as root."""
    made = Path(tempfile.mkdtemp(prefix="checkrein-"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def on_the_path(folder: Path, *programs: str) -> None:
    """Programs of PostgreSQL, for whoever runs the tests: as root they are run as somebody else."""
    other = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups " if os.geteuid() == 0 else ""
    for program in programs:
        (folder / program).write_text(f'#!/bin/sh\nexec {other}"{binaries() / program}" "$@"\n')
        (folder / program).chmod(0o755)


ON_ITS_OWN: Final = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
"""With ports of its own, since the page names some; and nothing of it is left when it ends."""


def is_allowed_alone() -> bool:
    try:
        return subprocess.run([*ON_ITS_OWN, "ip", "link", "set", "lo", "up"], capture_output=True).returncode == 0
    except OSError:
        return False


def test_the_commands_run_as_printed_one_after_the_other(folder: Path) -> None:
    if not is_allowed_alone() or shutil.which("curl") is None:
        pytest.skip("a process may not be given ports of its own here (unshare --net), or there is no curl")
    environment = environment_of_a_user(folder / "environment")
    on_the_path(folder / "environment" / "bin", "initdb", "pg_ctl")
    (folder / "checkrein").symlink_to(ROOT)
    project = folder / "project"
    project.mkdir()
    project.chmod(0o777)
    (project / "agent.py").write_text(named("agent.py").code)
    script = ["set -euo pipefail", "set -m", "ip link set lo up"]
    for block in BLOCKS:
        if block.language == "sh":
            script += [f"echo '@ {block}' | tee /dev/stderr", block.code]

    done = subprocess.run(
        [*ON_ITS_OWN, "bash", "-c", "\n".join(script)],
        cwd=project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={name: value for name, value in environment.items() if not name.startswith("PG")} | {"LC_ALL": "C.UTF-8"},
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "completed  Ten." in done.stdout, done.stdout
    assert "Cancelled." in done.stdout, done.stdout


# -- manifests


def commands() -> Iterator[tuple[str, list[str]]]:
    """What each container is told to do."""
    for service in yaml.safe_load(named("compose.yaml").code)["services"].values():
        if "build" in service:
            yield service["command"][0], service["command"]
    for container in containers():
        yield container["args"][0], container["args"]


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(named("checkrein.yaml").code))


def containers() -> Iterator[dict[str, Any]]:
    for manifest in manifests():
        yield from manifest["spec"].get("template", {}).get("spec", {}).get("containers", [])


def option(words: list[str], name: str, default: float) -> float:
    given = re.search(rf"{name}[= ](\S+)", " ".join(words))
    return default if given is None else float(given[1])


@pytest.mark.parametrize("block", YAML, ids=str)
def test_yaml_in_the_docs_is_yaml(block: Block) -> None:
    assert all(isinstance(document, dict) for document in yaml.safe_load_all(block.code))


@pytest.mark.parametrize(("name", "words"), list(commands()), ids=[name for name, _ in commands()])
def test_a_container_is_told_what_checkrein_takes(
    name: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    made = parsed([word.replace("$(POD)", "worker-0") for word in words])

    assert made.params


def test_a_pod_is_given_the_time_that_its_worker_takes_to_end() -> None:
    for manifest in manifests():
        pod = manifest["spec"].get("template", {}).get("spec")
        if pod is not None:
            words = pod["containers"][0]["args"]
            grace = option(words, "--shutdown-seconds", SHUT_DOWN_SECONDS) + AFTER_SHUTDOWN_SECONDS

            assert pod["terminationGracePeriodSeconds"] == grace


def test_a_service_of_compose_is_given_the_time_that_it_takes_to_end() -> None:
    for name, service in yaml.safe_load(named("compose.yaml").code)["services"].items():
        if name in ("worker", "front"):
            grace = option(service["command"], "--shutdown-seconds", SHUT_DOWN_SECONDS) + AFTER_SHUTDOWN_SECONDS

            assert service["stop_grace_period"] == f"{grace:g}s"


def test_a_worker_of_kubernetes_is_called_after_its_pod_of_which_there_is_only_one() -> None:
    (workers,) = [one for one in manifests() if one["kind"] == "StatefulSet"]
    (container,) = workers["spec"]["template"]["spec"]["containers"]

    assert "--name=$(POD)" in container["args"]
    assert {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}} in container["env"]


def test_probes_look_where_something_answers() -> None:
    fronts, workers = (next(one for one in containers() if one["args"][0] == name) for name in ("serve", "worker"))
    operations = (ROOT / "src" / "checkrein" / "server" / "routes" / "operations.py").read_text()
    (health,) = [word.partition("=")[2] for word in workers["args"] if word.startswith("--health-file")]

    for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        asked = fronts[probe]["httpGet"]
        assert asked["path"] == path
        # A front answers to no other name, and the address of a pod is none.
        assert [f"--allow-host={header['value']}" for header in asked["httpHeaders"]] == fronts["args"][-1:]
    assert '"/readyz"' in operations
    assert health in workers["livenessProbe"]["exec"]["command"][-1]


# -- the image

DOCKERFILE: Final = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", DOCKERFILE, re.MULTILINE)


def test_whatever_is_copied_into_the_image_is_there_and_is_not_ignored() -> None:
    sources = [source for line in instructions("COPY") for source in line.split()[:-1]]
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert set(sources) == kept


def test_the_image_has_every_extra_but_that_of_contributors() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (line,) = [line for line in instructions("RUN") if "pip install" in line]
    (extras,) = re.findall(r"\[(.*?)\]", line)

    assert set(extras.split(",")) == project["optional-dependencies"].keys() - {"dev"}


def test_what_is_copied_into_the_image_is_enough_to_build_a_wheel_of(tmp_path: Path) -> None:
    for line in instructions("COPY"):
        *sources, _ = line.split()
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tmp_path / source, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, tmp_path)

    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=tmp_path, check=True)

    assert list((tmp_path / "dist").glob("checkrein-*.whl"))


def test_the_image_runs_checkrein_as_nobody_special_and_ends_by_the_signal_that_it_heeds() -> None:
    assert instructions("ENTRYPOINT") == ['["checkrein"]']
    assert instructions("USER") == ["1000"]
    assert instructions("STOPSIGNAL") == ["SIGTERM"]


def test_the_image_looks_for_the_health_file_where_manifests_have_it() -> None:
    (check,) = instructions("HEALTHCHECK")
    files = {word for _, words in commands() for word in re.findall(r"/run/\S+", shlex.join(words))}

    assert files
    assert all(file in check for file in files)
