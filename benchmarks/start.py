# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From `rxbook run` to the first window, and how much of a run's wall time lies inside windows."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rxbook import runs


def main() -> None:
    """Run the notebook's own plan once and print both figures."""
    with tempfile.TemporaryDirectory() as folder:
        began_utc, began = datetime.datetime.now(datetime.UTC), time.monotonic()
        command = [str(Path(sys.executable).parent / "rxbook"), "run", "gro_on_off", "--runs-dir", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        command_s = time.monotonic() - began
        (path,) = Path(folder).iterdir()
        run, about = runs.load(path), json.loads((path / "run.json").read_text())
    first = datetime.datetime.fromisoformat(run.samples["start_utc"].iloc[0])
    print(
        f"from the command to the first window: {(first - began_utc).total_seconds():.1f} s (aim: 10 at most)"
    )
    inside = run.samples["window_s"].sum()
    print(f"inside windows: {inside / about['wall_s']:.0%} of the measuring, (aim: 70 % at least)")
    print(f"inside windows: {inside / command_s:.0%} of the whole command, {command_s:.0f} s")
