"""The batches of a table as numbers, and what is missing or unknown in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from softki.cli.console import Console
from softki.cli.errors import about
from softki.cli.model_file import ModelFile
from softki.data.column_encoding import is_present
from softki.data.encoding import Encoded, missing_message, unseen_messages
from softki.data.readers import Batches
from softki.exceptions import InvalidInputError


class EncodedBatches:
    """The batches of a table and their numbers, with a count of all that is missing or unknown.

    Rows with missing values are refused at the end of the table, so that all are counted; after
    the first one, batches are only counted.

    Args:
        model: whose encoder is used.
        reader: of the table.
        console: for the bar and for warnings.
        targets: columns that have to be there too, and to hold numbers.
    """

    def __init__(
        self, model: ModelFile, reader: Batches, console: Console, targets: Sequence[str] = ()
    ) -> None:
        self.encoder, self.reader, self.console = model.encoder, reader, console
        self.targets = targets
        self.rows = self.incomplete = 0
        self.missing: Counter[str] = Counter()
        self.unseen: dict[str, Counter[str]] = {}
        self.changed: Counter[str] = Counter()

    def __iter__(self) -> Iterator[tuple[Any, Encoded, np.ndarray]]:
        """Batch, numbers, and which rows are complete."""
        from tqdm.auto import tqdm

        shown = self.console.shows_progress
        with tqdm(total=self.reader.count, unit="row", unit_scale=True, disable=not shown) as bar:
            for batch in self.reader:
                with about(self.reader.name):
                    encoded, complete = self._encoded(batch)
                if not self._refused:
                    yield batch, encoded, complete
                bar.update(len(batch))
        if self._refused:
            raise InvalidInputError(
                f"{self.reader.name}: {missing_message(self.missing, self.incomplete)}: with "
                "--missing drop such rows have no prediction, with --missing impute values are "
                "filled in"
            )
        for message in (
            *unseen_messages(self.unseen),
            *self.encoder.changed_messages(self.changed),
        ):
            self.console.warn(f"{self.reader.name}: {message}")

    @property
    def _refused(self) -> bool:
        return self.encoder.missing == "refuse" and self.incomplete > 0

    def _encoded(self, batch: Any) -> tuple[Encoded, np.ndarray]:
        encoded = self.encoder.encode(batch)
        complete = encoded.complete.copy()
        self.missing += encoded.missing
        self.changed += encoded.changed
        for name in self.targets:
            present = is_present(batch.column(name), name)
            complete &= present
            self.missing += Counter({name: int((~present).sum())})
        for name, counts in encoded.unseen.items():
            self.unseen[name] = self.unseen.get(name, Counter()) + counts
        self.rows += len(batch)
        self.incomplete += int((~complete).sum())
        return encoded, complete
