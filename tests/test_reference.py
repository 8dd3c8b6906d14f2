"""The pages of the reference that are made from the code are those that the code makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from checkrein.core.events import EVENTS

ROOT = Path(__file__).parents[1]


def test_no_page_that_is_made_from_the_code_is_out_of_date() -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_event_says_in_a_sentence_what_it_is() -> None:
    page = (ROOT / "docs" / "reference" / "events.md").read_text()

    for event in EVENTS:
        section = page.partition(f"## `{event.__struct_config__.tag}`")[2].partition("\n## ")[0].strip()
        assert not section.startswith(("A fact.", "A decision.")), event
