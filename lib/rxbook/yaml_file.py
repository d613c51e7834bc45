# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Files that a user writes: YAML, checked against a model."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from rxbook import RxbookError

__all__ = ["read"]

Model = TypeVar("Model", bound=BaseModel)


def read(path: Path, model: type[Model], named: str, page: str) -> Model:
    """The file's content; raises RxbookError that names each wrong line.

    named: what an error calls the file. page: which of docs/ shows such a file.
    """
    try:
        return model.model_validate(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise RxbookError(f"{named}: {error.strerror}; docs/{page} shows such a file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RxbookError(f"{named} is no YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg']}" for item in error.errors()
        )
        raise RxbookError(f"{named}: {wrong}; docs/{page} shows such a file") from None
