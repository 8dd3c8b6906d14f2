"""The page over `checkrein serve`: the link that opens it once, and a server that is killed and comes back."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from playwright.sync_api import Browser, expect

from tests.browser.served import PATIENCE_MS, ROOT, until
from tests.support.patience import PATIENCE_SECONDS

AGENTS = """
from pathlib import Path
from checkrein import demo
churn = demo.agent(Path(__file__).parent / "data", pace=PACE)
"""


@contextmanager
def served(folder: Path, port: int = 0) -> Iterator[tuple[psutil.Process, str]]:
    """A server with its drivers, and the link it prints. At the end all of it is gone."""
    said = folder / f"said-{len(list(folder.glob('said-*')))}.txt"
    command = [sys.executable, "-c", "from checkrein.cli import main; main()", "serve", "agents.py"]
    command += ["--port", str(port), "--no-open", "--store", f"sqlite:///{folder}/runs.db"]
    env = dict(os.environ, PYTHONPATH=f"{ROOT}/src", PYTHONUNBUFFERED="1")
    with said.open("wb") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT, env=env)
        try:
            link = until(lambda: re.search(r"http://\S*enter\S*", said.read_text()), "the link is printed")
            yield psutil.Process(process.pid), link.group()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_SECONDS)


def test_the_page_survives_a_server_that_is_killed_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    """P6, D29: opened by the printed link, which stays nowhere; killed in the middle; back without a reload."""
    (tmp_path / "agents.py").write_text(AGENTS.replace("PACE", "1.0"))  # so slow that it is seen at its first step
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    status = page.locator("checkrein-bar .status")
    steps = page.locator("section.steps")

    with served(tmp_path) as (server, link):
        port = urlsplit(link).port or 0
        page.goto(link)
        assert page.url == f"http://127.0.0.1:{port}/"
        page.get_by_label("What should it do?").fill("Which customers will churn next quarter?")
        page.keyboard.press("Enter")
        expect(steps.locator("li").filter(has_text="Fetch customer list")).to_contain_text("Running")

        everything = [server, *server.children(recursive=True)]
        for process in everything:
            process.kill()
        psutil.wait_procs(everything, timeout=PATIENCE_SECONDS)
        expect(page.locator("checkrein-bar .bar[data-lost]")).to_be_visible()
        expect(page.get_by_text("The page connects again by itself")).to_be_visible()

    (tmp_path / "agents.py").write_text(AGENTS.replace("PACE", "0.1"))
    with served(tmp_path, port):
        expect(page.locator("checkrein-bar .bar[data-lost]")).to_have_count(0)
        expect(status).to_have_text("Completed")
        expect(steps.locator("li").filter(has_text="Write summary memo")).to_contain_text("Done")
    context.close()
