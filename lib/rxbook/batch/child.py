# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One item of a batch, in a process of its own: it ends with the process that started it, however that ends.

Run as a module; standard input has one line of JSON: notebook, folder, given, and the pid of who waits.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path

from rxbook import RxbookError, execute
from rxbook.batch.items import note_end
from rxbook.kernel.lifetime import die_with_parent

__all__ = ["main"]


def main() -> int:
    """Run the item and note how it ended in its folder. Status 1 where it failed; its notebook keeps where."""
    asked = json.loads(sys.stdin.readline())
    die_with_parent(asked["parent"])
    folder, start, error = Path(asked["folder"]), time.monotonic(), None
    try:
        execute.into(asked["notebook"], folder, asked["given"])
    except RxbookError as found:
        error = str(found)
    except Exception as found:
        traceback.print_exc()
        error = f"{type(found).__name__}: {found}"
    except KeyboardInterrupt:
        return 130  # the folder stays as it is, to be gone on with
    wall_s = round(time.monotonic() - start, 1)
    note_end(folder, error, wall_s, notebook=asked["notebook"], parameters=asked["given"])
    return 0 if error is None else 1


if __name__ == "__main__":
    sys.exit(main())
